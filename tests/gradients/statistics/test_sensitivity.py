"""Sensitivity against the Gram matrices of the oracle, over the zoo."""

import pytest
import torch
from torch import nn

from neuroinit.gradients.plan import make_plan
from neuroinit.gradients.statistics.sensitivity import sensitivity
from neuroinit.model.problem import Problem
from tests.utils import oracles
from tests.utils.architectures import ZOO

SINGLE = {"float32": 1e-4, "bfloat16": 1e-4}


def seen(model, batch, loss_fn, compute_loss, count):
    problem = Problem(model, loss_fn, compute_loss)
    prepared = problem.prepare(batch)
    plan = make_plan(problem, prepared, count, 0.0, "cover", "sub-batch")
    return sensitivity(problem.at(problem.unit_scales), prepared, plan), problem


def apart(gram):
    """The mean product of different sub-batches, not below zero."""
    count = len(gram)
    return max(0.0, float(gram.sum() - gram.trace()) / (count * (count - 1)))


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_sensitivity_is_that_of_the_oracle(found):
    torch.manual_seed(0)
    model, batch = found.build(), found.batch(8)
    result, problem = seen(model, batch, found.loss_fn, found.compute_loss, 4)
    slices = oracles.sub_batch_slices_cover(8, 4, 0.0)
    grams = oracles.layer_grams(model, batch, slices, found.loss_fn, found.compute_loss)
    grams = {n.removeprefix("_orig_mod."): gram for n, gram in grams.items()}
    tolerance = SINGLE.get(found.name, 1e-7)
    whole = sum(grams.values())
    size = float(whole.trace())
    for k, name in enumerate(problem.scaled):
        expected = problem.start[name].double().norm() * grams[name].mean().sqrt()
        slack = tolerance**0.5 * size**0.5
        assert float(result.by_tensor[k]) == pytest.approx(float(expected), tolerance, slack)
    assert result.squared == pytest.approx(apart(whole), tolerance, tolerance * size)
    assert float(result.moments.cosine) == pytest.approx(float(oracles.cosine(whole)), tolerance)


def test_one_sub_batch_is_the_gradient_itself():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    batch = torch.randn(8, 4, dtype=torch.float64), torch.randint(3, (8,))
    result, _ = seen(model, batch, nn.functional.cross_entropy, None, 1)
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    assert float(result.norms[0]) == pytest.approx(float(model.weight.grad.norm()))
    absolute = float(model.weight.grad.abs().sum() + model.bias.grad.abs().sum())
    assert result.absolute == pytest.approx(absolute)


def test_noise_is_not_counted_in_the_square():
    """Targets that have nothing to do with the inputs."""
    torch.manual_seed(0)
    model = nn.Linear(20, 10, bias=False).double()
    with torch.no_grad():
        model.weight.mul_(1e-6)
    batch = torch.randn(4000, 20, dtype=torch.float64), torch.arange(4000) % 10
    result, _ = seen(model, batch, nn.functional.cross_entropy, None, 8)
    assert result.squared < float(result.norms[0]) ** 2 / 4


def test_a_sub_batch_without_a_gradient_adds_nothing():
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    inputs = torch.cat([-torch.ones(4, 3), torch.ones(4, 3)]).double()

    def hinge(output, target):
        return torch.relu(output[:, 0] - target).mean()

    result, _ = seen(model, (inputs, torch.zeros(8).double()), hinge, None, 2)
    assert result.moments.norms.tolist() == pytest.approx([0.0, 3**0.5])
    assert float(result.by_tensor[0]) == pytest.approx(3**0.5 * 3**0.5 / 2)
    assert float(result.moments.cosine) == pytest.approx(0.25)  # of the mean direction
