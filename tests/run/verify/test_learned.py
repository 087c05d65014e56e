"""What a short training has learned about the inputs, and how it decides."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.model.problem import Problem
from neuroinit.run.optimize_verified import KEPT
from neuroinit.run.rollout import Rollout
from neuroinit.run.verify import verified
from tests.run.verify.networks import learnable, network, plain, sgd, shrunk


def slow(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def test_a_network_that_learns_nothing_about_its_inputs_is_replaced(monkeypatch):
    """The learning rate is too small for a lower loss within a few steps."""
    found = ni.nio_(shrunk(plain()), learnable(), optimizer=slow).verified
    assert found.startswith("applied layer by layer")
    assert found.endswith("reaches 1.094 and learns nothing about its inputs")
    monkeypatch.setattr("neuroinit.run.optimize_verified.CommonFactor", type(None))
    found = ni.nio_(shrunk(plain()), learnable(), optimizer=slow).verified
    assert found.startswith("applied")  # also if the method makes no diagnosis


class Both(nn.Module):
    """A branch that sees the inputs, and a constant that can learn how frequent classes are."""

    def __init__(self, features, constant):
        super().__init__()
        self.features, self.constant = nn.Parameter(features), nn.Parameter(constant)

    def forward(self, x):
        return x @ self.features + self.constant.sum(0)


def test_a_lower_loss_does_not_count_if_it_ignores_the_inputs():
    """The result learns faster how frequent the classes are, and no longer sees its inputs."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(64, 8, generator=generator) for _ in range(20)]
    rare = [(x, (x[:, 0] > 2.0).long()) for x in inputs]
    model = Both(0.05 * torch.randn(8, 2), torch.full((1, 2), 0.1))
    found = ni.optimize(model, rare, method=ni.NIO(steps=1))
    scales = {"features": 1e-9, "constant": 1.0}
    with torch.no_grad():
        model.constant += torch.tensor([0.0, 3.0])  # of the rare class
        own = dataclasses.replace(found, scales={**scales, "constant": 0.03}, digests={})
    options = (F.cross_entropy, None, slow, SAMPLES_FIRST)
    rollouts = [
        Rollout(Problem(model, F.cross_entropy, None), start, slow)
        for start in (
            {n: p * s[n] for n, p in model.named_parameters()}
            for s in (dict.fromkeys(scales, 1.0), own.scales)
        )
    ]
    for rollout in rollouts:
        rollout.train(iter(rare[4:]), 12)
    before, after = (r.outcome(rare[:4]).losses for r in rollouts)
    assert max(after) < min(before)
    result = verified(model, {"whole": own}, rare[:KEPT], *options)
    assert not result.verified.startswith("applied whole")


def test_what_is_learned_is_the_loss_with_other_targets_minus_the_loss():
    model, (batch, *_) = network().double(), learnable(1, 10)
    inputs, targets = batch[0].double(), batch[1]
    rollout = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    with torch.no_grad():
        output = model(inputs)
    others = [F.cross_entropy(output, targets.roll(-shift)) for shift in (2, 4, 6, 8)]
    expected = torch.stack(others).mean() - F.cross_entropy(output, targets)
    assert rollout.outcome([(inputs, targets)]).learned == pytest.approx(
        [expected.item()], rel=1e-12
    )


def test_a_constant_network_has_learned_nothing():
    model = shrunk(network().double(), 0.0)
    model[-1].bias.data.copy_(torch.tensor([1.0, 0.0, -1.0]))
    rollout = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    batches = [(x.double(), y) for x, y in learnable(3)]
    assert rollout.outcome(batches).learned == pytest.approx([0.0] * 3, abs=1e-15)
    assert len(set(rollout.outcome(batches).losses)) == 3


def test_what_is_learned_of_a_compute_loss():
    model, batches = network(), learnable(3)
    dicts = [{"x": x, "labels": y} for x, y in batches]

    def compute_loss(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["labels"])

    pairs = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    own = Rollout(problem := Problem(model, None, compute_loss), problem.original, sgd)
    assert own.outcome(dicts).learned == pytest.approx(pairs.outcome(batches).learned, rel=1e-5)


@pytest.mark.parametrize("batch", [{"x": torch.ones(4, 8)}, {"x": torch.ones(1, 8)}])
def test_nothing_is_said_of_what_is_learned_without_targets(batch):
    def compute_loss(model, batch):
        return model(batch["x"]).square().mean()

    rollout = Rollout(problem := Problem(network(), None, compute_loss), problem.original, sgd)
    assert rollout.outcome([batch]).learned == []


def test_without_targets_the_losses_decide():
    """An autoencoder: a dead start is replaced, a dead result is not applied."""
    torch.manual_seed(0)
    layers = [m for _ in range(5) for m in (nn.Linear(8, 8), nn.Tanh())]
    batches = [{"x": x} for x, _ in learnable()]

    def compute_loss(model, batch):
        return (model(batch["x"]) - batch["x"]).square().mean()

    model = shrunk(nn.Sequential(*layers), 0.1)
    result = ni.nio_(model, batches, compute_loss=compute_loss, optimizer=sgd)
    assert result.verified.startswith("applied")
    assert "nothing" not in result.verified
    model = nn.Sequential(*layers)
    found = ni.optimize(model, batches, None, ni.NIO(steps=1), compute_loss=compute_loss)
    found = dataclasses.replace(found, scales=dict.fromkeys(found.scales, 1e-6))
    options = (None, compute_loss, sgd, SAMPLES_FIRST)
    result = verified(model, {"whole": found}, batches[:KEPT], *options)
    assert result.verified.startswith("not applied")


def test_a_dead_result_does_not_replace_a_start_that_learns():
    model, batches = network(), learnable()
    found = ni.optimize(model, batches, method=ni.NIO(steps=1))
    found = dataclasses.replace(found, scales=dict.fromkeys(found.scales, 1e-6))  # dead
    options = (F.cross_entropy, None, sgd, SAMPLES_FIRST)
    result = verified(model, {"whole": found}, batches[:KEPT], *options)
    assert result.verified.startswith("not applied")
