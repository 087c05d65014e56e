"""Statistics and agreement of one forward pass against those of two."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.plan import make_plan
from neuroinit.gradients.statistics.both import (
    measure_with_agreement_if_possible,
    with_agreement,
    with_agreement_in_one_pass,
)
from neuroinit.gradients.statistics.gradient_stats import measure
from neuroinit.model.problem import Problem


def prepared(loss_fn=F.cross_entropy, norm=None, overlap=0.0):
    torch.manual_seed(0)
    norms = [] if norm is None else [norm]
    model = nn.Sequential(nn.Linear(4, 6), *norms, nn.Tanh(), nn.Linear(6, 3)).double()
    problem = Problem(model, loss_fn, None)
    batch = problem.prepare((torch.randn(16, 4).double(), torch.randint(3, (16,))))
    plan = make_plan(problem, batch, 4, overlap, "cover", "sub-batch")
    return model, problem.at(problem.unit_scales), batch, plan


@pytest.mark.parametrize("overlap", [0.0, 0.5])
@pytest.mark.parametrize("norm", [None, nn.BatchNorm1d(6)], ids=["plain", "batch_norm"])
def test_one_forward_pass_gives_both(norm, overlap):
    _, point, batch, plan = prepared(norm=norm, overlap=overlap)
    found = with_agreement_in_one_pass(point, batch, plan, None)
    wanted = with_agreement(measure(point, batch, plan), point, batch, plan)
    assert found is not None
    assert found.agreement == pytest.approx(wanted.agreement)
    assert found.loss == pytest.approx(wanted.loss)
    torch.testing.assert_close(found.norms, wanted.norms)
    torch.testing.assert_close(found.cosines, wanted.cosines)
    assert [x.norm for x in found.layers] == pytest.approx([x.norm for x in wanted.layers])


def test_a_random_loss_draws_the_same_numbers():
    def noisy(output, target):
        return F.cross_entropy(output + torch.randn(3).to(output), target)

    _, point, batch, plan = prepared(noisy)
    found = with_agreement_in_one_pass(point, batch, plan, None)
    wanted = with_agreement(measure(point, batch, plan), point, batch, plan)
    assert found is not None
    assert (found.loss, found.agreement) == pytest.approx((wanted.loss, wanted.agreement))


def test_the_model_runs_once():
    model, point, batch, plan = prepared()
    with_agreement_in_one_pass(point, batch, plan, None)  # with the trial
    calls: list[int] = []
    model.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs[0])))
    with_agreement_in_one_pass(point, batch, plan, None)
    assert calls == [16]


def test_a_loss_that_takes_its_own_targets_only():
    """It raises for those of other samples: the statistics are there without the agreement."""

    def strict(output, target):
        if not own.get(len(target), target.tolist()) == target.tolist():
            raise RuntimeError("other targets")
        return F.cross_entropy(output, target)

    own: dict[int, list[int]] = {}
    _, point, batch, plan = prepared(strict)
    start, stop = plan.pieces[0]
    first = batch[0][start:stop].repeat(4, 1), batch[1][start:stop].repeat(4).roll(1)
    own[stop - start] = first[1][start:stop].tolist()
    found = measure_with_agreement_if_possible(point, first, plan)
    assert found is not None
    assert math.isfinite(found.norm)
    assert math.isnan(found.agreement)


def test_memory_that_is_short_takes_two_passes():
    _, point, batch, plan = prepared()
    assert with_agreement_in_one_pass(point, batch, plan, held=4) is None
