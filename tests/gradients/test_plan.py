"""Pieces of sub-batches, and how ranks share them."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.distributed.ranks import Ranks
from neuroinit.gradients.engines import Keep, Stream
from neuroinit.gradients.passes.planned import streamed_samples
from neuroinit.gradients.plan import make_plan, plan_pieces, share_of
from neuroinit.model.problem import Problem


def problem_and_batch(size=12):
    model = nn.Linear(4, 3).double()
    batch = torch.randn(size, 4, dtype=torch.float64), torch.randint(3, (size,))
    return Problem(model, F.cross_entropy), batch


PLANS = {
    "one piece each": plan_pieces(12, [(0, 4), (4, 8), (8, 12)], False, None, False),
    "overlapping": plan_pieces(12, [(0, 6), (3, 9), (6, 12)], True, None, False),
    "micro-batches": plan_pieces(12, [(0, 6), (6, 12)], True, 2, False),
    "one sub-batch": plan_pieces(12, [(0, 12)], True, 3, False),
}


@pytest.mark.parametrize("world", range(1, 6))
@pytest.mark.parametrize("name", PLANS)
def test_every_piece_of_every_sub_batch_is_on_one_rank(name, world):
    plan = PLANS[name]
    total = torch.zeros_like(plan.weights)
    for rank in range(world):
        share = share_of(plan, rank, world)
        assert share.plan.pieces == tuple(plan.pieces[s] for s in share.pieces)
        for (d, s), weight in zip(
            itertools.product(share.sub_batches, share.pieces),
            share.plan.weights.flatten(),
            strict=True,
        ):
            total[d, s] += weight
    torch.testing.assert_close(total, plan.weights)


@pytest.mark.parametrize("microbatch", [2, 3])
def test_ranks_share_a_sub_batch_with_a_piece_for_each(microbatch):
    plan = plan_pieces(12, [(0, 6), (6, 12)], True, microbatch, False)  # three or two pieces each
    shares = [share_of(plan, rank, 4) for rank in range(4)]
    assert [share.sub_batches for share in shares] == [(0,), (0,), (1,), (1,)]
    assert all(share.pieces for share in shares)
    assert all(share.blocks == ((0, 1), (2, 3)) for share in shares)
    assert [share.leader for share in shares] == [True, False, True, False]


def test_a_sub_batch_that_cannot_be_cut_stays_on_one_rank():
    plan = plan_pieces(12, [(0, 6), (6, 12)], False, None, False)
    shares = [share_of(plan, rank, 4) for rank in range(4)]
    assert sorted(share.sub_batches for share in shares) == [(), (), (0,), (1,)]
    assert not any(share.blocks for share in shares)


@pytest.mark.parametrize(
    ("world", "options", "longest"),
    [(1, {}, 6), (2, {}, 6), (4, {}, 3), (2, {"serial": True}, 3), (4, {"serial": True}, 1)],
)
def test_sub_batches_are_cut_where_several_ranks_share_one(world, options, longest):
    problem, batch = problem_and_batch()
    problem.traits.note("independent", True)
    problem.ranks = Ranks(0, world)
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch", **options)
    assert {stop - start for start, stop in plan.pieces} == {longest}


def test_one_rank_cuts_overlapping_sub_batches_at_their_edges_alone():
    problem, batch = problem_and_batch()
    plan = make_plan(problem, batch, 2, 0.5, "cover", "sub-batch")
    assert plan.pieces == ((0, 4), (4, 8), (8, 12))
    assert plan.microbatch is None


@pytest.mark.parametrize(("size", "samples"), [(12, 3), (10, 3), (3, 1)])
def test_stream_takes_a_quarter_of_a_batch_rounded_up(size, samples):
    problem, batch = problem_and_batch(size)
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch")
    assert streamed_samples(plan) == samples


def test_stream_takes_a_micro_batch():
    problem, batch = problem_and_batch()
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch", microbatch=2)
    assert streamed_samples(plan) == 2


@pytest.mark.parametrize("engine", [Keep(), Stream()], ids=lambda e: e.name)
def test_the_gram_matrix_is_there_if_it_is_asked_for(engine):
    problem, batch = problem_and_batch()
    plan = make_plan(problem, batch, 3, 0.0, "cover", "sub-batch")
    point = problem.at(problem.unit_scales)
    found = [engine.derivative(point, batch, plan, lambda m: m.norm, *g) for g in ((), (True,))]
    assert found[0].moments.gram is None
    assert found[1].moments.gram.shape == (3, 3)


def test_a_batch_of_two_samples_with_batch_norm_takes_the_statistics_of_the_batch():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    _, batch = problem_and_batch(2)
    problem = Problem(model, F.cross_entropy)
    with pytest.warns(UserWarning, match="BatchNorm needs two samples"):
        plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch")
    assert plan.one_forward
    found = Keep().derivative(problem.at(problem.unit_scales), batch, plan, lambda m: m.norm)
    assert torch.isfinite(found.gradient).all()
