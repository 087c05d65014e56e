"""A bound from the optimizer."""

import math

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.model.arguments.optimizers import rate_of

BATCHES = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(3)]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def gamma_for(optimizer, **fields):
    fields = {"steps": 2, "sub_batches": 4, "rule": ni.HeldNorm(), **fields}
    result = ni.nio_(network(), BATCHES, optimizer=optimizer, **fields)
    return result.settings["gamma"]


@pytest.mark.parametrize(
    ("lr", "momentum", "expected"),
    [
        (0.1, 0.9, math.sqrt(math.log(3))),  # the first steps promise the loss that there is
        (1.0, 0.9, math.log(3) / 2),  # but not less than half of the usual bound
        (0.001, 0.0, math.log(3) * 2),  # nor more than twice
    ],
)
def test_the_bound_of_sgd(lr, momentum, expected):
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum)

    assert gamma_for(sgd) == pytest.approx(expected, rel=1e-6)


def test_steps_of_adam_do_not_depend_on_the_norm():
    assert gamma_for(torch.optim.Adam) == pytest.approx(math.log(3))


def test_a_bound_that_was_given_stays():
    assert gamma_for(lambda p: torch.optim.SGD(p, lr=0.1), gamma=2.5) == 2.5


def test_the_fastest_group_counts():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": first.parameters()}, {"params": second.parameters(), "lr": 0.5}]
    assert rate_of(torch.optim.SGD(groups, lr=0.1, momentum=0.5)) == 1.0


def test_what_is_no_optimizer():
    with pytest.raises(TypeError, match="`optimizer` should be a torch optimizer"):
        ni.nio_(network(), BATCHES, optimizer=0.1)
    with pytest.raises(ValueError, match="`rate` should be a finite number"):
        ni.NIO(rate=0.0)
