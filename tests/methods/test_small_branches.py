"""Ends of residual branches are found in the graph of any model."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.experiments.models.small_networks import Residual, residual_mlp
from neuroinit.model.problem import Problem

IMAGES = torch.randn(2, 3, 32, 32), torch.randint(3, (2,))


def ends(model, batch, loss_fn=F.cross_entropy, compute_loss=None):
    problem = Problem(model, loss_fn, compute_loss)
    return ni.SmallBranches.ends(problem, problem.prepare(batch))


class Encoder(nn.Module):
    """torch's own layers, whose first skip path is the input."""

    def __init__(self, norm_first):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


def test_residual_perceptrons():
    model = residual_mlp(4, 16)
    found = ends(model, (torch.randn(4, 64), torch.randint(10, (4,))))
    assert found == [f"{k}.branch.2.weight" for k in range(2, 6)]


def test_residual_convolutions():
    branch = (nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 3, 1))
    model = nn.Sequential(Residual(*branch), nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    assert ends(model, IMAGES) == ["0.branch.2.weight"]


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_layers_of_torch(norm_first):
    found = ends(Encoder(norm_first), (torch.randn(4, 5, 8), torch.randint(3, (4,))))
    parts = ("self_attn.out_proj", "linear2")
    assert found == [f"body.layers.{k}.{part}.weight" for k in range(2) for part in parts]


def test_gpt2_of_hugging_face():
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 20, "n_positions": 8}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(20, (4, 8))
    batch = {"input_ids": tokens, "labels": tokens}
    found = ends(model, batch, None, lambda model, batch: model(**batch).loss)
    parts = ("attn.c_proj", "mlp.c_proj")
    assert found == [f"transformer.h.{k}.{part}.weight" for k in range(2) for part in parts]


def test_resnet_of_torchvision():
    """Branches end in BatchNorm; three of the skip paths have a layer of their own."""
    from neuroinit.experiments.vision import torchvision

    model = torchvision().models.resnet18(num_classes=3)
    assert ends(model, IMAGES) == [f"layer{k}.{j}.bn2.weight" for k in range(1, 5) for j in (0, 1)]


def test_vit_of_timm():
    from neuroinit.experiments.vision import torchvision

    torchvision()
    timm = pytest.importorskip("timm")
    sizes = {"img_size": 32, "num_classes": 3, "depth": 2, "embed_dim": 12, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", **sizes)
    parts = ("attn.proj", "mlp.fc2")
    assert ends(model, IMAGES) == [f"blocks.{k}.{part}.weight" for k in range(2) for part in parts]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_have_no_branches(kind):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = kind(4, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.cell(x)[0][:, -1])

    assert ends(Recurrent(), (torch.randn(4, 5, 4), torch.randint(3, (4,)))) == []


def test_last_layers_are_divided_by_the_root_of_their_number():
    model = residual_mlp(4, 16)
    data = [(torch.randn(4, 64), torch.randint(10, (4,)))]
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    result = ni.optimize(model, data, method=ni.SmallBranches())
    changed = {n: s for n, s in result.scales.items() if s != 1}
    assert changed == {f"{k}.branch.2.weight": 0.5 for k in range(2, 6)}
    ni.optimize(model, data, method=ni.SmallBranches(factor=0.01)).apply_(model)
    after = dict(model.named_parameters())
    torch.testing.assert_close(after["2.branch.2.weight"], 0.01 * before["2.branch.2.weight"])
    assert torch.equal(after["2.branch.2.bias"], before["2.branch.2.bias"])


def test_without_branches_nothing_changes():
    data = [(torch.randn(4, 5), torch.randint(3, (4,)))]
    result = ni.optimize(nn.Linear(5, 3), data, method=ni.SmallBranches())
    assert set(result.scales.values()) == {1.0}


def test_the_factor_is_checked():
    with pytest.raises(ValueError, match="`factor` should be"):
        ni.SmallBranches(factor=-math.inf)


class Queries(nn.Module):
    """The skip path is a sum of two parameters: learned queries and their positions."""

    def __init__(self):
        super().__init__()
        self.queries, self.positions = (nn.Parameter(torch.randn(3, 8)) for _ in range(2))
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        queries = self.queries + self.positions
        return x @ (queries + self.layer(queries)).T


def test_a_branch_on_learned_queries():
    assert ends(Queries(), (torch.randn(4, 8), torch.randint(3, (4,)))) == ["layer.weight"]


def test_weights_and_embeddings_get_a_standard_deviation():
    torch.manual_seed(0)
    blocks = [Residual(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(9, 16), nn.LayerNorm(16), *blocks, nn.Linear(16, 3))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    data = [(torch.randint(9, (8,)), torch.randint(3, (8,)))]
    ni.optimize(model, data, method=ni.SmallBranches(std=0.02)).apply_(model)
    for name, parameter in model.named_parameters():
        if name.startswith("1.") or name.endswith("bias"):
            assert torch.equal(parameter, before[name]), name
        else:
            expected = 0.01 if name.endswith("branch.2.weight") else 0.02
            assert parameter.square().mean().sqrt().item() == pytest.approx(expected), name


def test_std_is_checked():
    with pytest.raises(ValueError, match="`std` should be"):
        ni.SmallBranches(std=-1.0)
