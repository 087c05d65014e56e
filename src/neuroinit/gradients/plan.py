"""The pieces of a batch that are computed, for models whose samples may see each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Interval, batch_size
from neuroinit.common.checks import check_choice, check_count, check_overlap
from neuroinit.gradients.independence import are_independent
from neuroinit.gradients.sub_batches import SPLITS, sub_batches
from neuroinit.model.problem import Problem

BATCH_STATS = ("sub-batch", "batch")


@dataclass(frozen=True)
class Plan:
    """What is computed: ``pieces`` of the batch, and ``g_d = sum_s weights[d, s] * g_s``.

    With ``whole``, every piece is a slice of the losses of one forward pass of the whole batch
    (BatchNorm then sees the whole batch); otherwise a piece is a forward pass of its own, or
    several are one, of no more than ``microbatch`` samples if that is set.
    """

    pieces: tuple[Interval, ...]
    weights: Tensor
    whole: bool = False
    microbatch: int | None = None

    @property
    def simple(self) -> bool:
        """Whether every sub-batch is one piece of its own."""
        return len(self.pieces) == len(self.weights) and bool(
            torch.equal(self.weights, _identity(len(self.pieces)))
        )


@dataclass(frozen=True)
class Share:
    """What one of several ranks computes of a plan.

    Args:
        plan: The pieces of its own, and what they are of the rows of its own.
        rows: Which sub-batches these rows are.
        columns: Which pieces these are.
        blocks: Which ranks have parts of the same row; empty if every row is on one rank.
        leader: Whether it is the first of its block.
    """

    plan: Plan
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...] = ()
    leader: bool = True


def share(plan: Plan, rank: int, world: int) -> Share:
    """A rank's sub-batches; with fewer sub-batches than ranks, its pieces of one of them.

    Where a sub-batch cannot be cut, some ranks have nothing to do.
    """
    count = len(plan.weights)
    if world == 1:
        return Share(plan, tuple(range(count)), tuple(range(len(plan.pieces))))
    used = [row.nonzero().flatten().tolist() for row in plan.weights]
    blocks = [tuple(r for r in range(world) if r * count // world == d) for d in range(count)]
    if world > count and all(len(u) >= len(b) for u, b in zip(used, blocks, strict=True)):
        row = rank * count // world
        place = blocks[row].index(rank)
        columns = part(used[row], place, len(blocks[row]))
        return Share(_only(plan, [row], columns), (row,), tuple(columns), tuple(blocks), place == 0)
    rows = part(list(range(count)), rank, world)
    columns = sorted({s for d in rows for s in used[d]})
    return Share(_only(plan, rows, columns), tuple(rows), tuple(columns))


def part(items: list[Any], rank: int, world: int) -> list[Any]:
    """A rank's items, in order; the numbers of items differ by one at most."""
    return items[len(items) * rank // world : len(items) * (rank + 1) // world]


def only(plan: Plan, d: int) -> Plan:
    """One sub-batch of a plan."""
    return _only(plan, [d], plan.weights[d].nonzero().flatten().tolist())


def _only(plan: Plan, rows: list[int], columns: list[int]) -> Plan:
    weights = plan.weights[rows][:, columns]
    return replace(plan, pieces=tuple(plan.pieces[s] for s in columns), weights=weights)


def pieces(
    intervals: list[Interval], independent: bool, microbatch: int | None, whole: bool
) -> Plan:
    """Choose the pieces: each distinct run of samples once where samples don't see each other.

    Args:
        intervals: The sub-batches.
        independent: Whether a sample's loss does not depend on the samples beside it.
        microbatch: Largest number of samples in a piece; only where samples are independent.
        whole: Take slices of one forward pass of the whole batch.
    """
    overlapping = any(a[1] > b[0] for a, b in itertools.pairwise(intervals))
    if whole or not independent or not (overlapping or microbatch):
        return Plan(tuple(intervals), _identity(len(intervals)), whole)
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
    return Plan(tuple(pieces), table, microbatch=microbatch)


def _identity(count: int) -> Tensor:
    return torch.eye(count, dtype=torch.float64, device="cpu")


def _chunks(start: int, stop: int, length: int) -> list[Interval]:
    """Parts of at most ``length``, as even as can be."""
    count = -(-(stop - start) // length)
    edges = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))


def check_split(count: int | str, overlap: float, split: str, batch_stats: str) -> None:
    """Raise for arguments about sub-batches that are out of range."""
    if count != "samples":
        check_count("sub_batches", count, 1, 'or "samples"')
    check_overlap(overlap)
    check_choice("split", split, tuple(SPLITS))
    check_choice("batch_stats", batch_stats, BATCH_STATS)


def make_plan(
    problem: Problem,
    batch: Any,
    count: int | str,
    overlap: float,
    split: str,
    batch_stats: str,
    microbatch: int | None = None,
    serial: bool = False,
) -> Plan:
    """Cut a batch for a model: pieces where samples don't see each other, else whole sub-batches.

    Args:
        problem: The model and its loss.
        batch: A prepared batch.
        count: Number of sub-batches, or ``"samples"``.
        overlap: Overlap ratio.
        split: How to cut, see :data:`SPLITS`.
        batch_stats: Which samples BatchNorm's statistics are taken of.
        microbatch: Largest number of samples in a piece.
        serial: Sub-batches are computed one after the other, each by all ranks.
    """
    size = batch_size(batch)
    intervals = sub_batches(size, size if count == "samples" else int(count), overlap, split)
    norms = problem.batch_norms
    if norms and batch_stats == "sub-batch" and any(b - a == 1 for a, b in intervals) and size > 1:
        problem.warn_once(
            "Sub-batches of one sample have no BatchNorm statistics of their own: those of the "
            "whole batch are used. Say so with `batch_stats='batch'`.",
        )
        batch_stats = "batch"
    whole = batch_stats == "batch" and bool(norms)
    at_once = 1 if serial else len(intervals)
    scarce = problem.ranks.world > at_once  # ranks share a sub-batch
    cuttable = (microbatch is not None or overlap > 0 or scarce) and not whole
    independent = cuttable and not norms and are_independent(problem, batch)
    if scarce and independent:
        ranks_each = math.ceil(problem.ranks.world / at_once)
        finest = max(1, min(b - a for a, b in intervals) // ranks_each)
        microbatch = min(microbatch or finest, finest)
    if microbatch is not None and not independent:
        raise ValueError(
            f"`microbatch = {microbatch}` needs samples that don't see each other, which "
            f"{f'`{norms[0]}`' if norms else 'the gradient of a batch'} contradicts. "
            "Leave it out, and use more sub-batches to save memory."
        )
    return pieces(intervals, independent, microbatch, whole)
