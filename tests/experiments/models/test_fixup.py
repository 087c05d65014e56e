"""FixUp's networks and their initialization, as in the authors' released code."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.experiments.models import build
from neuroinit.experiments.models.fixup import FixupBlock, FixupBottleneck, scalar_names


def randomized(module):
    """All parameters from a normal distribution, the scalars included."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def test_a_block_that_keeps_the_shape():
    block = randomized(FixupBlock(6, 6, 1))
    x = torch.randn(2, 6, 8, 8, dtype=torch.float64)
    hidden = F.relu(F.conv2d(x + block.bias1a, block.conv1.weight, padding=1) + block.bias1b)
    branch = F.conv2d(hidden + block.bias2a, block.conv2.weight, padding=1)
    expected = F.relu(x + block.scale * branch + block.bias2b)
    torch.testing.assert_close(block(x), expected)


def test_a_block_that_halves_the_image():
    """The shortcut has the bias of the first layer, and its zero channels come last."""
    block = randomized(FixupBlock(6, 12, 2))
    x = torch.randn(2, 6, 8, 8, dtype=torch.float64)
    hidden = F.relu(F.conv2d(x + block.bias1a, block.conv1.weight, None, 2, 1) + block.bias1b)
    branch = F.conv2d(hidden + block.bias2a, block.conv2.weight, padding=1) * block.scale
    shortcut = torch.zeros(2, 12, 4, 4, dtype=torch.float64)
    shortcut[:, :6] = (x + block.bias1a)[:, :, 0::2, 0::2]
    torch.testing.assert_close(block(x), F.relu(shortcut + branch + block.bias2b))


def test_a_bottleneck_that_changes_the_shape():
    block = randomized(FixupBottleneck(6, 4, 2))
    x = torch.randn(2, 6, 8, 8, dtype=torch.float64)
    hidden = F.relu(F.conv2d(x + block.bias1a, block.conv1.weight) + block.bias1b)
    hidden = F.conv2d(hidden + block.bias2a, block.conv2.weight, None, 2, 1)
    hidden = F.relu(hidden + block.bias2b)
    branch = F.conv2d(hidden + block.bias3a, block.conv3.weight) * block.scale + block.bias3b
    shortcut = F.conv2d(x + block.bias1a, block.shortcut.weight, None, 2)
    torch.testing.assert_close(block(x), F.relu(shortcut + branch))


@pytest.mark.parametrize(("name", "blocks"), [("fixup-resnet-20", 9), ("fixup-resnet50", 16)])
def test_the_initialization(name, blocks):
    model = build(name)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 7.0)  # no initial value is left over
    ni.fixup_(model)
    assert len(model.blocks) == blocks
    bound = 1 / math.sqrt(model.conv.weight[0].numel())  # torch's default for the first layer
    assert 0.95 * bound < model.conv.weight.abs().max() <= bound
    assert model.conv.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    for block in model.blocks:
        *first, last = block.fixup_branch
        assert not last.weight.any()
        for layer in first:
            fan_out = layer.out_channels * layer.weight[0, 0].numel()
            std = math.sqrt(2 / fan_out) * blocks ** (-0.5 / len(first))
            assert layer.weight.std().item() == pytest.approx(std, rel=0.1)
        shortcut = getattr(block, "shortcut", None)
        if shortcut is not None:
            assert shortcut.weight.std().item() == pytest.approx(
                math.sqrt(2 / shortcut.out_channels), rel=0.1
            )
    scalars = {n: p.item() for n, p in model.named_parameters() if p.numel() == 1}
    assert all(value == float(n.endswith("scale")) for n, value in scalars.items())
    assert not model.classifier.weight.any()
    assert not model.classifier.bias.any()


def test_only_fixups_networks_have_slow_parameters():
    assert scalar_names(build("resnet-8")) == set()
    model = build("fixup-resnet-8")
    slow = scalar_names(model)
    assert {"bias1", "blocks.0.bias2a", "blocks.2.scale", "classifier.bias"} <= slow
    assert slow == {n for n, p in model.named_parameters() if p.numel() == 1} | {"classifier.bias"}


def test_resnet50_is_torchvisions_without_its_norms():
    with torch.device("meta"):
        ours, theirs = build("fixup-resnet50", 1000), build("torchvision:resnet50", 1000)
    ours, theirs = (
        sorted(p.shape for p in model.parameters() if p.dim() > 1) for model in (ours, theirs)
    )
    assert ours == theirs


def test_the_output_is_zero_after_initialization():
    model = build("fixup-resnet50", 7)
    ni.fixup_(model)
    assert (model(torch.randn(2, 3, 64, 64)) == 0).all()


def test_a_network_names_its_branches():
    model = build("fixup-resnet-20")
    branches = [m.fixup_branch for m in model.modules() if hasattr(m, "fixup_branch")]
    assert [len(branch) for branch in branches] == [2] * 9
    assert isinstance(model.fixup_classifier, nn.Linear)
