"""The paper's architectures, against the numbers of parameters in their papers."""

import pytest
import torch

from neuroinit.experiments.models import build, check_name, names
from neuroinit.experiments.models.registry import AUXILIARY


def count(model):
    return sum(p.numel() for p in model.parameters())


PUBLISHED = {  # millions, as printed in the papers
    "resnet-20": (0.27, 2),
    "resnet-32": (0.46, 2),
    "resnet-44": (0.66, 2),
    "resnet-56": (0.85, 2),
    "resnet-110": (1.7, 1),
    "densenet-40": (1.0, 1),
    "densenet-bc-100": (0.8, 1),
    "wrn-28-10": (36.5, 1),
    "wrn-16-8": (11.0, 1),
    "torchvision:resnet50": (25.6, 1),
    "timm:swin_tiny_patch4_window7_224": (28.3, 1),
    "fixup-resnet50": (25.5, 1),  # ResNet-50 less its BatchNorms
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name):
    millions, digits = PUBLISHED[name]
    with torch.device("meta"):
        model = build(name, 1000 if ":" in name or name.endswith("50") else 10)
    assert round(count(model) / 1e6, digits) == millions


SMALL = ["resnet-8", "densenet-10", "densenet-bc-10", "wrn-10-1", "fixup-resnet-8", "swin-cifar"]


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_gets_a_gradient(name):
    model = build(name, 7)
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet-21", "6n \\+ 2"),
        ("densenet-bc-12", "6n \\+ 4"),
        ("wrn-29-10", "6n \\+ 4"),
        ("vgg", r"no model `vgg`.*resnet-20.*FILE\.py:FUNCTION"),
        ("torchvision:nothing", "no classifier `nothing`"),
        ("timm:nothing", "no model `nothing`"),
        ("swin-cifar-nobn", "no BatchNorm"),
    ],
)
def test_wrong_names_say_what_to_do(name, message):
    for function in (build, check_name):
        with pytest.raises(ValueError, match=message):
            function(name)


def test_a_name_is_checked_without_drawing():
    state = torch.get_rng_state()
    for name in names():
        check_name(name)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", AUXILIARY)
def test_one_output_where_torchvision_has_several(name):
    assert build(f"torchvision:{name}", 7)(torch.randn(2, 3, 80, 80)).shape == (2, 7)


def test_names_are_buildable():
    with torch.device("meta"):
        assert all(build(name) for name in names())
