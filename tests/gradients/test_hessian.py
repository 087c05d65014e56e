"""Hessian-vector products and gradients of one sub-batch, against a dense Hessian in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from neuroinit.gradients.hessian import gradient, gradient_and_product
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from tests.utils.engines import ENGINES


@pytest.fixture
def setting():
    """A problem, its batch, a plan of pieces of two samples, and the loss of a flat vector."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    batch = torch.randn(9, 3, dtype=torch.float64), torch.randint(2, (9,))
    problem = Problem(model, F.cross_entropy)
    plan = make_plan(problem, batch, 2, 0.5, "cover", "sub-batch", microbatch=2)
    sizes = {n: p.shape for n, p in model.named_parameters()}

    def loss(theta, start, stop):
        parts = torch.split(theta, [shape.numel() for shape in sizes.values()])
        values = {n: x.view(s) for (n, s), x in zip(sizes.items(), parts, strict=True)}
        output = functional_call(model, values, batch[0][start:stop])
        return F.cross_entropy(output, batch[1][start:stop])

    return problem, batch, plan, loss


def flat(problem):
    return torch.cat([problem.start[n].reshape(-1) for n in problem.trainable])


@pytest.mark.parametrize(("sub_batch", "samples"), [(0, (0, 6)), (1, (3, 9))])
def test_gradient_of_a_sub_batch(setting, sub_batch, samples):
    problem, batch, plan, loss = setting
    point = problem.at(problem.unit_scales)
    value, found = gradient(point, batch, plan, problem.trainable, sub_batch)
    theta = flat(problem).requires_grad_()
    expected = loss(theta, *samples)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(found, torch.autograd.grad(expected, theta)[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_product_with_the_gradient(setting, engine):
    problem, batch, plan, loss = setting
    point = problem.at(problem.unit_scales)
    with gradient_and_product(point, batch, plan, ENGINES[engine]) as (value, found, product):
        along = product(2 * found)
    theta = flat(problem)
    hessian = torch.autograd.functional.hessian(lambda t: loss(t, 0, 6), theta)
    g = torch.autograd.functional.jacobian(lambda t: loss(t, 0, 6), theta)
    torch.testing.assert_close(value, loss(theta, 0, 6))
    torch.testing.assert_close(found, g)
    sizes = [problem.start[n].numel() for n in problem.scaled]
    expected = torch.stack([x.sum() for x in torch.split(theta * (hessian @ (2 * g)), sizes)])
    torch.testing.assert_close(along, expected)
