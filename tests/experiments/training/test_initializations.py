"""Initializations by name."""

import pytest
import torch

from neuroinit.experiments.models import build
from neuroinit.experiments.training.initializations import (
    METHODS,
    SCHEMES,
    Parsed,
    initialize_,
    learned_method,
    parse,
    scheme_or_method,
)


def test_rules_and_methods_are_names():
    assert {parse(name).method for name in METHODS} == set(METHODS)
    assert {parse(name).scheme for name in SCHEMES} == set(SCHEMES)
    assert parse("default+nio:steps=2") == Parsed("default", "nio", {"steps": 2})


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("steps=20,gamma=2.0", {"steps": 20, "gamma": 2.0}),
        ("split='cover'", {"split": "cover"}),
        ("split=cover, steps=3", {"split": "cover", "steps": 3}),  # a shell removes quotes
        ("include=('*.weight', '*.bias'),steps=3", {"include": ("*.weight", "*.bias"), "steps": 3}),
        ("gamma=auto,reinit_zeros=None", {"gamma": "auto", "reinit_zeros": None}),
        ("", {}),
    ],
)
def test_settings(text, settings):
    assert parse(f"nio:{text}").settings == settings


def test_presets():
    names = ("'cifar10-wrn28-10'", "cifar10-wrn28-10")
    quoted, bare = (learned_method(f"nio-paper:preset={name}") for name in names)
    assert quoted == bare
    assert bare.overlap == 0.7
    assert learned_method("gradinit:preset=cifar10-densenet100,lr=0.5").steps == 780


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("magic", r"no initialization `magic`\. Choose a scheme \(default, kaiming"),
        ("kaiming+magic", r"no initialization `kaiming\+magic`"),
        ("nio:steps", r"`nio:steps`: settings should look like .* Found `steps`\."),
        ("nio:20", r"`nio:20`: settings should look like .* Found `20`\."),
        ("nio:steps=x", r"`nio:steps=x`: Parameter `steps` should be an int\. Found `steps = 'x'`"),
        ("nio:steps=-1", r"`nio:steps=-1`: Parameter `steps` should be an int of at least 1"),
        ("nio:steps=2,steps=3", "`steps` is set twice"),
        ("nio:depth=3", r"`nio` has no setting `depth`\. Choose from include, exclude, steps"),
        ("nio:preset=x", "`nio` has no setting `preset`"),
        ("kaiming:depth=3", r"a scheme has no settings\. These have: nio"),
    ],
)
def test_errors_are_one_line(name, message):
    with pytest.raises(ValueError, match=message) as raised:
        learned_method(name)
    assert "\n" not in str(raised.value)
    assert "0x" not in str(raised.value)  # an object's address helps nobody


def test_one_rule_or_one_method():
    with pytest.raises(ValueError, match=r"name one scheme or one method here, without `\+`"):
        scheme_or_method("kaiming+nio")
    assert scheme_or_method("default") is None


def test_methods_start_from_kaiming():
    torch.manual_seed(0)
    model = build("resnet-8-nobn")
    weight = model.conv.weight.clone()
    batches = [(torch.randn(16, 3, 8, 8), torch.randint(10, (16,))) for _ in range(3)]
    result = initialize_(model, "nio:steps=1,sub_batches=2", batches)
    assert not torch.equal(model.conv.weight, weight)
    assert set(result.scales) <= {name for name, _ in model.named_parameters()}
