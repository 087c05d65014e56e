"""What is found out about a model by trying."""

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.passes.trials import samples_are_independent, try_separating
from neuroinit.model.problem import Problem


def problem_and_batch(size, gain=1.0):
    model = nn.Linear(4, 3).double()
    with torch.no_grad():
        model.weight.mul_(gain)
    batch = torch.randn(size, 4, dtype=torch.float64), torch.randint(3, (size,))
    return Problem(model, F.mse_loss if gain > 1 else F.cross_entropy), batch


def test_samples_of_a_loss_that_is_not_finite_count_as_dependent():
    problem, (inputs, _) = problem_and_batch(6, gain=1e200)
    assert not samples_are_independent(problem, (inputs, torch.zeros(6, 3).double()))
    problem, (inputs, _) = problem_and_batch(6, gain=2.0)
    assert samples_are_independent(problem, (inputs, torch.zeros(6, 3).double()))


def test_two_samples_are_enough_to_see_that_pieces_can_be_kept_apart():
    problem, batch = problem_and_batch(2)
    try_separating(problem.at(problem.unit_scales), batch)
    assert problem.traits.separable
