import math

import pytest
import torch

from neuroinit.methods.updates import Plain, TwoMomentAdam, clamped


def test_adam_keeps_two_first_moments_and_one_second():
    """The rule in plain floats, for one scale."""
    adam, scale = TwoMomentAdam(clip=1.0), torch.ones(1, dtype=torch.float64)
    state = adam.init(scale)
    w, first, second, counts = 1.0, [0.0, 0.0], 0.0, [0, 0]
    for gradient, constrained in [(0.3, 0), (5.0, 1), (-0.2, 0), (0.1, 1), (0.4, 1), (-9.0, 0)]:
        scale, state = adam.step(
            scale, torch.tensor([gradient], dtype=torch.float64), 0.1, bool(constrained), state
        )
        g = max(-1.0, min(1.0, gradient))
        counts[constrained] += 1
        first[constrained] = 0.9 * first[constrained] + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        mean = first[constrained] / (1 - 0.9 ** counts[constrained])
        w -= 0.1 * mean / (math.sqrt(second / (1 - 0.999 ** sum(counts))) + 1e-8)
        assert scale.item() == pytest.approx(w, rel=1e-12)


def test_log_steps_multiply():
    adam, scale = TwoMomentAdam(log=True), torch.tensor([0.02, 50.0], dtype=torch.float64)
    moved, _ = adam.step(scale, torch.tensor([1.0, -1.0]).double(), 0.1, False, adam.init(scale))
    torch.testing.assert_close(moved, scale * torch.exp(torch.tensor([-0.1, 0.1]).double()))


def test_plain_is_the_step_of_algorithm_3():
    moved, _ = Plain().step(torch.ones(1), torch.tensor([0.5]), 0.1, False, {})
    assert moved.item() == pytest.approx(0.95)


def test_clamp_and_a_scale_that_is_gone():
    moved = torch.tensor([-1.0, 0.5, 2.0])
    found = clamped(moved, torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0.01, 0.0, 0.01]))
    torch.testing.assert_close(found, torch.tensor([0.01, 0.0, 2.0]))


@pytest.mark.parametrize(
    "fields", [{"clip": 0.0}, {"clip": math.nan}, {"beta1": 1.0}, {"beta2": -0.1}, {"eps": 0.0}]
)
def test_fields_out_of_range(fields):
    (name,) = fields
    with pytest.raises(ValueError, match=f"`{name}` should be a finite number"):
        TwoMomentAdam(**fields)
