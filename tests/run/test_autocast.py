"""bfloat16 forward passes: near the float32 derivative, same promises."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.engines import Keep, Stream
from neuroinit.gradients.passes.trials import samples_are_independent
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 10),
    )


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(16, 3, 8, 8, generator=generator), torch.randint(
        10, (16,), generator=generator
    )


@pytest.mark.parametrize("engine", [Keep(), Stream()], ids=["keep", "stream"])
def test_the_derivative_is_near_that_of_float32(batch, engine):
    found = []
    for autocast in (None, torch.bfloat16):
        problem = Problem(network(), F.cross_entropy, autocast=autocast)
        point = problem.at(problem.unit_scales)
        plan = make_plan(problem, batch, 4, 0.0, "cover", "sub-batch")
        found.append(engine.derivative(point, batch, plan, lambda m: m.cosine + m.norm))
    exact, ours = found
    assert not torch.equal(exact.gradient, ours.gradient)
    assert (exact.gradient - ours.gradient).norm() < 0.05 * exact.gradient.norm()
    assert float(ours.moments.cosine) == pytest.approx(float(exact.moments.cosine), rel=0.05)


def test_forward_passes_run_in_bfloat16_and_sums_do_not(batch):
    model = network()
    seen = []
    model[3].register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    before = snapshot(model)
    method = ni.NIO(steps=2, sub_batches=2)
    result = ni.optimize(model, [batch], method=method, autocast=torch.bfloat16)
    assert_unchanged(before, model)
    assert set(seen) == {torch.bfloat16}
    assert result.after is not None
    assert result.after.norms.dtype == torch.float64


def test_samples_are_still_found_to_be_independent(batch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    problem = Problem(model, F.cross_entropy, autocast=torch.bfloat16)
    assert samples_are_independent(problem, batch)
    assert problem.autocast is torch.bfloat16


def test_other_dtypes_are_refused(batch):
    with pytest.raises(ValueError, match=r"`autocast` should be `None` or `torch.bfloat16`"):
        ni.nio_(network(), [batch], autocast=torch.float16)
