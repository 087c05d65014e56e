import math

import pytest
import torch

from neuroinit.methods.updates import Plain, TwoMomentAdam, clamped


@pytest.mark.parametrize("shared", [True, False])
def test_adam_has_two_first_moments_and_one_or_two_second(shared):
    """The rule in plain floats, for one scale."""
    adam = TwoMomentAdam(clip=0.8, beta1=0.7, beta2=0.95, eps=1e-3, shared=shared)
    scale = torch.ones(1, dtype=torch.float64)
    state = adam.init(scale)
    w, first, second, counts = 1.0, [0.0, 0.0], [0.0, 0.0], [0, 0]
    for gradient, constrained in [(0.3, 0), (5.0, 1), (-0.2, 0), (0.1, 1), (0.4, 1), (-9.0, 0)]:
        scale, state = adam.step(
            scale, torch.tensor([gradient], dtype=torch.float64), 0.1, bool(constrained), state
        )
        g = max(-0.8, min(0.8, gradient))
        row = 0 if shared else constrained
        counts[constrained] += 1
        first[constrained] = 0.7 * first[constrained] + 0.3 * g
        second[row] = 0.95 * second[row] + 0.05 * g * g
        mean = first[constrained] / (1 - 0.7 ** counts[constrained])
        steps = sum(counts) if shared else counts[constrained]
        w -= 0.1 * mean / (math.sqrt(second[row] / (1 - 0.95**steps)) + 1e-3)
        assert scale.item() == pytest.approx(w, rel=1e-12)


def test_adam_does_not_change_the_state_that_it_gets():
    adam, scales = TwoMomentAdam(), torch.ones(2, dtype=torch.float64)
    state = adam.init(scales)
    adam.step(scales, scales, 0.1, True, state)
    assert not any(tensor.any() for tensor in state.values())


def test_adam_has_the_settings_of_the_released_code():
    adam = TwoMomentAdam()
    assert (adam.clip, adam.beta1, adam.beta2, adam.eps) == (1.0, 0.9, 0.999, 1e-8)
    assert adam.shared
    assert not adam.log


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
