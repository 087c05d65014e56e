"""Parameter groups and steps of the optimizers."""

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.experiments.models import build
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.optimizers import make_optimizer, set_rate, take_step


def names_of(model, group):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)] for parameter in group["params"]}


def test_sgd_has_one_group():
    model = build("resnet-8")
    (group,) = make_optimizer(model, Config(weight_decay=0.1)).param_groups
    assert group["params"] == list(model.parameters())
    assert (group["weight_decay"], group["momentum"], group["rate_factor"]) == (0.1, 0.9, 1.0)


def test_adamw_does_not_decay_vectors():
    model = build("resnet-8")
    config = Config(optimizer="adamw", weight_decay=0.1)
    matrices, vectors = make_optimizer(model, config).param_groups
    assert {p.dim() for p in matrices["params"]} == {2, 4}
    assert {p.dim() for p in vectors["params"]} == {1}
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_fixup_trains_biases_and_multipliers_with_a_tenth_of_the_rate(optimizer):
    model = build("fixup-resnet-8")
    made = make_optimizer(model, Config(optimizer=optimizer))
    set_rate(made, 0.5)
    rates = {n: group["lr"] for group in made.param_groups for n in names_of(model, group)}
    assert set(rates) == {name for name, _ in model.named_parameters()}
    for name, rate in rates.items():
        assert rate == (0.05 if "bias" in name or "scale" in name else 0.5)


def test_a_step_of_fixups_network():
    """One step of SGD without momentum's history: every value moves by its rate."""
    torch.manual_seed(0)
    model = build("fixup-resnet-8")
    ni.fixup_(model)
    nn.init.normal_(model.classifier.weight)  # or all other gradients are zero
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, Config(weight_decay=0.0))
    set_rate(optimizer, 0.2)
    take_step(optimizer, model(torch.randn(4, 3, 8, 8)).square().mean())
    for name, parameter in model.named_parameters():
        rate = 0.02 if "bias" in name or "scale" in name else 0.2
        torch.testing.assert_close(parameter.detach(), before[name] - rate * parameter.grad)


def test_a_loss_that_is_not_finite_takes_no_step():
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert take_step(optimizer, model(torch.ones(1, 2)).sum() * float("inf")) in (
        float("inf"),
        float("-inf"),
    )
    assert torch.equal(model.weight, before)


def test_clipping():
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    take_step(optimizer, 100 * model(torch.ones(1, 2)).sum(), model.parameters(), clip=0.5)
    assert (model.weight.detach() - before).norm().item() == pytest.approx(0.5, rel=1e-4)
