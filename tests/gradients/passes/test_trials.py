"""What is found out about a model by trying."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.passes.planned import passes_over
from neuroinit.gradients.passes.trials import (
    may_be_separable,
    pieces_are_separable,
    relative_error,
    samples_are_independent,
)
from neuroinit.gradients.plan import make_plan
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
    assert pieces_are_separable(problem.at(problem.unit_scales), batch)


def test_samples_are_compared_on_as_many_as_memory_allows():
    tried = []

    class Full(nn.Linear):
        def forward(self, x):
            tried.append(len(x))
            assert len(tried) < 9
            if len(x) > 5:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    _, batch = problem_and_batch(16)
    assert samples_are_independent(Problem(Full(4, 3).double(), F.cross_entropy), batch)
    assert tried == [16, 8, 4, 1, 3]


def test_two_samples_that_do_not_fit_are_an_error():
    class Full(nn.Linear):
        def forward(self, x):
            raise torch.OutOfMemoryError("out of memory")

    _, batch = problem_and_batch(16)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        samples_are_independent(Problem(Full(4, 3).double(), F.cross_entropy), batch)


def test_the_rounding_of_autocast_does_not_look_like_dependence():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    batch = torch.randn(24, 4), torch.randint(3, (24,))
    problem = Problem(model, F.cross_entropy, autocast=torch.bfloat16)
    assert samples_are_independent(problem, batch)


def errors(found, wanted, modules):
    return relative_error(
        [torch.tensor(f).double() for f in found],
        [torch.tensor(w).double() for w in wanted],
        modules,
    )


def test_an_error_is_relative_to_its_gradient_and_a_little_to_those_of_its_module():
    wanted = [[3.0, 4.0], [0.0, 1000.0]]
    found = [[3.0, 4.6], [0.0, 1000.0]]
    assert errors(found, wanted, ["a", "b"]) == pytest.approx(0.6 / (5 + 0.005))
    assert errors(found, wanted, ["a", "a"]) == pytest.approx(0.6 / (5 + 1.0))
    assert errors(wanted, wanted, ["a", "a"]) == 0


def test_the_largest_error_counts():
    assert errors([[2.0], [1.5]], [[1.0], [1.0]], ["a", "b"]) == pytest.approx(1 / 1.001)


def test_an_error_without_a_size_is_infinite():
    assert errors([[1.0]], [[0.0]], ["a"]) == math.inf
    assert errors([[math.nan]], [[1.0]], ["a"]) == math.inf
    assert errors([[0.0]], [[0.0]], ["a"]) == 0


def test_pieces_may_be_separable_until_the_test_fails():
    problem, _ = problem_and_batch(6)
    assert may_be_separable(problem)
    for outcome in (True, False):
        problem.traits.note("separable", outcome)
        assert may_be_separable(problem) is outcome


class InFloat32(nn.Linear):
    """In float32, the output for a sample depends on the other samples; in float64 it does not."""

    def __init__(self, strength):
        super().__init__(4, 3)
        self.strength = strength

    def forward(self, x):
        x = super().forward(x)
        return x + self.strength * x.mean(0) if x.dtype == torch.float32 else x


@pytest.mark.parametrize(("strength", "expected"), [(1e-6, True), (0.02, True), (1.0, False)])
def test_small_errors_in_float32_are_computed_again_in_float64_and_large_ones_are_not(
    strength, expected
):
    torch.manual_seed(0)
    batch, model = (torch.randn(12, 4), torch.randint(3, (12,))), InFloat32(strength)
    problem = Problem(model, F.cross_entropy)
    assert samples_are_independent(problem, batch) is expected
    assert pieces_are_separable(problem.at(problem.unit_scales), batch) is expected


def test_a_batch_that_cannot_tell_is_followed_by_another_test():
    traits, outcomes = Problem(nn.Linear(4, 3), F.cross_entropy).traits, [None, None, True]
    found = [traits.find("separable", lambda: outcomes.pop(0)) for _ in range(4)]
    assert found == [False, False, True, True]


class Mixing(nn.Linear):
    """The output for a sample depends on the other samples, in one of several ways."""

    def __init__(self, mix):
        super().__init__(4, 3)
        self.mix = mix

    def forward(self, x):
        return self.mix(super().forward(x))


def only_two(y):
    """Fails like a model that is made for two samples."""
    if len(y) != 2:
        raise ValueError
    return y


MIXING = {
    "mean": lambda y: y + y.mean(0),
    "first": lambda y: y + y[:1],
    "last": lambda y: y + y[-1:],
    "mirror": lambda y: y + y.flip(0),
    "size": lambda y: y * len(y),
    "two only": only_two,
}


def first_passes(mix, samples, differentiated=None):
    """Whether six pieces of two samples were found to be separable, and the sizes of all passes."""
    torch.manual_seed(0)
    seen = []
    model = Mixing(lambda y: seen.append(len(y)) or mix(y)).double()
    batch = torch.randn(12, 4).double(), torch.randint(3, (12,))
    problem = Problem(model, F.cross_entropy)
    plan = make_plan(problem, batch, 6, 0.0, "cover", "sub-batch")
    names = differentiated or problem.trainable
    with problem.at(problem.unit_scales).session(second_order=True) as session:
        passes = passes_over(session, batch, plan, names, samples, create_graph=True)
        losses = [loss for made in passes for loss in made.losses]
    sizes = list(seen)
    for loss, (start, stop) in zip(losses, plan.pieces, strict=True):
        apart = F.cross_entropy(model(batch[0][start:stop]), batch[1][start:stop])
        torch.testing.assert_close(loss, apart.detach())
    return problem.traits.outcomes["separable"], sizes


@pytest.mark.parametrize(("samples", "wanted"), [(12, [12, 2]), (6, [6, 2, 6])])
def test_the_first_pass_over_three_pieces_or_more_is_tested_itself(samples, wanted):
    assert first_passes(torch.tanh, samples) == (True, wanted)


@pytest.mark.parametrize("name", MIXING)
def test_the_first_pass_finds_models_whose_pieces_cannot_be_kept_apart(name):
    separable, seen = first_passes(MIXING[name], 12)
    assert not separable
    assert seen[0] == 12
    assert seen[-6:] == [2] * 6


def test_two_pieces_or_some_of_the_parameters_are_tested_before():
    assert first_passes(torch.tanh, 4) == (True, [3, 6, 9, 4, 4, 4])
    assert first_passes(torch.tanh, 12, ["weight"]) == (True, [3, 6, 9, 12])


def test_a_first_pass_for_which_memory_runs_out_says_nothing_about_the_model():
    def full(y):
        if len(y) == 12:
            raise torch.OutOfMemoryError("out of memory")
        return y

    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        first_passes(full, 12)
