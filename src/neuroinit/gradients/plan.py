"""The plan of a batch: its pieces, and the sub-batches as weighted sums of pieces.

Where the loss of a sample does not depend on the other samples, overlapping sub-batches are cut
into pieces so that no sample is computed twice, and large sub-batches into micro-batches:

    g_d = sum_s weights[d, s] g_s,        H_d v = sum_s weights[d, s] H_s v.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.checks import check_choice, check_count, check_overlap
from neuroinit.gradients.passes.trials import samples_are_independent
from neuroinit.gradients.sub_batches import SPLITS, sub_batches
from neuroinit.model.problem import Problem

BATCH_STATS = ("sub-batch", "batch")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Plan:
    """The pieces of a batch, and the weight of every piece in every sub-batch.

    Args:
        size: Number of samples in the batch.
        pieces: Runs of consecutive samples ``(start, stop)``.
        weights: Shape ``(D, pieces)``: ``g_d = sum_s weights[d, s] g_s``, float64 on the CPU.
        one_forward: Every piece is a slice of the losses of one forward pass of the whole batch, so
            that BatchNorm sees the whole batch. Otherwise every piece takes a forward pass.
        microbatch: Most samples in one pass; ``None`` for no limit.
    """

    size: int
    pieces: tuple[Interval, ...]
    weights: Tensor
    one_forward: bool = False
    microbatch: int | None = None

    @property
    def simple(self) -> bool:
        """Whether every sub-batch is exactly one piece."""
        return len(self.pieces) == len(self.weights) and bool(
            torch.equal(self.weights, _identity(len(self.pieces)))
        )

    @property
    def samples(self) -> int:
        """Number of samples in all pieces; samples in several pieces count more than once."""
        return sum(stop - start for start, stop in self.pieces)

    @property
    def largest(self) -> int:
        """Number of samples in the largest piece."""
        return max(stop - start for start, stop in self.pieces)

    def only(self, sub_batch: int) -> Plan:
        """The plan of one sub-batch."""
        used = self.weights[sub_batch].nonzero().flatten().tolist()
        return self.part([sub_batch], used)

    def part(self, sub_batches: list[int], pieces: list[int]) -> Plan:
        """The plan of some sub-batches and some pieces, by index."""
        weights = self.weights[sub_batches][:, pieces]
        return replace(self, pieces=tuple(self.pieces[s] for s in pieces), weights=weights)


def make_plan(
    problem: Problem,
    batch: Batch,
    count: int | str,
    overlap: float,
    split: str,
    batch_stats: str,
    microbatch: int | None = None,
    serial: bool = False,
) -> Plan:
    """Cut a batch into sub-batches, and these into pieces where samples are independent.

    Args:
        problem: The model and its loss.
        batch: A prepared batch.
        count: Number of sub-batches ``D``, or ``"samples"``.
        overlap: Overlap ratio ``r``.
        split: How to cut, see :data:`SPLITS`.
        batch_stats: ``"sub-batch"`` or ``"batch"``: the samples of BatchNorm's statistics.
        microbatch: Most samples in a piece.
        serial: Sub-batches are computed one after the other, each by all ranks.

    Raises:
        ValueError: If ``microbatch`` is set and samples are not independent.
    """
    size = problem.layout.size(batch)
    intervals = sub_batches(size, size if count == "samples" else int(count), overlap, split)
    norms = problem.batch_norms
    if norms and batch_stats == "sub-batch" and any(b - a == 1 for a, b in intervals) and size > 1:
        problem.warn_once(
            "BatchNorm needs two samples or more, and a sub-batch has one: the statistics of the "
            "whole batch are used. Pass `batch_stats='batch'` to choose this without a warning.",
        )
        batch_stats = "batch"
    one_forward = batch_stats == "batch" and bool(norms)
    at_once = 1 if serial else len(intervals)
    ranks_share = problem.ranks.world > at_once  # more ranks than sub-batches
    cuttable = (microbatch is not None or overlap > 0 or ranks_share) and not one_forward
    independent = cuttable and not norms and samples_are_independent(problem, batch)
    if ranks_share and independent:
        ranks_each = math.ceil(problem.ranks.world / at_once)
        finest = max(1, min(b - a for a, b in intervals) // ranks_each)
        microbatch = min(microbatch or finest, finest)
    if microbatch is not None and not independent:
        raise ValueError(
            f"`microbatch = {microbatch}` needs a loss in which samples do not depend on each "
            f"other, and here {f'`{norms[0]}`' if norms else 'the gradient'} mixes samples. "
            "Leave it out, and use more sub-batches to save memory."
        )
    return plan_pieces(size, intervals, independent, microbatch, one_forward)


def plan_pieces(
    size: int,
    intervals: list[Interval],
    independent: bool,
    microbatch: int | None,
    one_forward: bool,
) -> Plan:
    """The plan for given sub-batches. If samples are independent, each is computed once.

    Args:
        size: Number of samples in the batch.
        intervals: The sub-batches, as ``(start, stop)``.
        independent: Whether a sample's loss does not depend on the other samples.
        microbatch: Most samples in a piece; only where samples are independent.
        one_forward: See :class:`Plan`.
    """
    overlapping = any(a[1] > b[0] for a, b in itertools.pairwise(intervals))
    if one_forward or not independent or not (overlapping or microbatch):
        return Plan(size, tuple(intervals), _identity(len(intervals)), one_forward)
    edges = sorted({edge for interval in intervals for edge in interval})
    pieces = [
        piece
        for start, stop in itertools.pairwise(edges)
        for piece in _chunks(start, stop, microbatch or stop - start)
    ]
    weights = [
        [(t - s) / (b - a) if a <= s and t <= b else 0.0 for s, t in pieces] for a, b in intervals
    ]
    table = torch.tensor(weights, dtype=torch.float64, device="cpu")
    return Plan(size, tuple(pieces), table, microbatch=microbatch)


def check_split(count: int | str, overlap: float, split: str, batch_stats: str) -> None:
    """Raise for arguments about sub-batches that are out of range."""
    if count != "samples":
        check_count("sub_batches", count, 1, 'or "samples"')
    check_overlap(overlap)
    check_choice("split", split, tuple(SPLITS))
    check_choice("batch_stats", batch_stats, BATCH_STATS)


# -- several ranks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankShare:
    """This rank's part of a plan.

    Args:
        plan: This rank's sub-batches and pieces.
        sub_batches: The indices of these sub-batches in the whole plan.
        pieces: The indices of these pieces in the whole plan.
        blocks: Groups of ranks that compute parts of the same sub-batch; empty if every sub-batch
            is on one rank.
        leader: Whether this rank is the first of its block.
    """

    plan: Plan
    sub_batches: tuple[int, ...]
    pieces: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...] = ()
    leader: bool = True


def share_of(plan: Plan, rank: int, world: int) -> RankShare:
    """This rank's sub-batches; if there are more ranks, its pieces of one sub-batch.

    If there are more ranks and sub-batches cannot be cut, some ranks have nothing to compute.
    """
    count = len(plan.weights)
    if world == 1:
        return RankShare(plan, tuple(range(count)), tuple(range(len(plan.pieces))))
    used = [weights.nonzero().flatten().tolist() for weights in plan.weights]
    blocks = [tuple(r for r in range(world) if r * count // world == d) for d in range(count)]
    if world > count and all(len(u) >= len(b) for u, b in zip(used, blocks, strict=True)):
        d = rank * count // world
        place = blocks[d].index(rank)
        pieces = part_of(used[d], place, len(blocks[d]))
        part = plan.part([d], pieces)
        return RankShare(part, (d,), tuple(pieces), tuple(blocks), place == 0)
    own = part_of(list(range(count)), rank, world)
    pieces = sorted({s for d in own for s in used[d]})
    return RankShare(plan.part(own, pieces), tuple(own), tuple(pieces))


def part_of(items: list[Item], rank: int, world: int) -> list[Item]:
    """This rank's items, in order; the numbers of items differ by one at most."""
    return items[len(items) * rank // world : len(items) * (rank + 1) // world]


def _identity(count: int) -> Tensor:
    return torch.eye(count, dtype=torch.float64, device="cpu")


def _chunks(start: int, stop: int, length: int) -> list[Interval]:
    """Parts of at most ``length`` samples, as equal as possible."""
    count = -(-(stop - start) // length)
    edges = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))
