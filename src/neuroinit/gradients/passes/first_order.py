"""Gradients of pieces and sub-batches as flat vectors, by first-order passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.errors import in_loss_with_gradient, named_operator
from neuroinit.common.tensors import to_cpu_double
from neuroinit.gradients.over_ranks import on_every_rank
from neuroinit.gradients.passes.pieces import Pass
from neuroinit.gradients.passes.planned import passes_over, streamed_pieces, streamed_samples
from neuroinit.gradients.plan import Plan, share_of
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session


def gradient_rows(
    point: Point,
    batch: Batch,
    plan: Plan,
    losses: list[Tensor],
    names: Sequence[str],
    entries: int | None = None,
) -> Iterator[Tensor]:
    """Yield the gradients of all sub-batches in order, as matrices of one row per sub-batch.

    Every rank yields the same gradients.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        losses: The loss of every piece is appended to this list.
        names: The parameters to differentiate by.
        entries: Most entries of gradients in one matrix; a pass then takes as many samples as a
            training step. By default the engine `stream`'s limits hold.

    Raises:
        RuntimeError: If the loss takes a gradient through an operator without double backward.
    """
    problem = point.problem
    with named_operator(in_loss_with_gradient):
        if problem.ranks.alone:
            with point.session() as session:
                yield from _sub_batch_rows(session, batch, plan, names, losses, entries)
            return
        share = share_of(plan, problem.ranks.rank, problem.ranks.world)
        own: list[Tensor] = []
        with problem.ranks.together(), point.session() as session:
            found = _sub_batch_rows(session, batch, share.plan, names, own, entries)
            parts = [gradient for rows in found for gradient in rows]
            losses += _losses_of_all(problem, plan, share.pieces, own)
        every = on_every_rank(problem, len(plan.weights), share, parts, names)
        yield from (gradient[None] for gradient in every)


def sub_batch_gradients(
    session: Session,
    batch: Batch,
    plan: Plan,
    names: Sequence[str],
    losses: list[Tensor] | None = None,
) -> Iterator[Tensor]:
    """Yield ``g_d = sum_s weights[d, s] g_s`` in order, of the sub-batches of this rank's plan.

    Holds only the gradients of sub-batches for which some pieces are computed and some are not.
    """
    for rows in _sub_batch_rows(session, batch, plan, names, losses):
        yield from rows


def _sub_batch_rows(
    session: Session,
    batch: Batch,
    plan: Plan,
    names: Sequence[str],
    losses: list[Tensor] | None = None,
    entries: int | None = None,
) -> Iterator[Tensor]:
    """Yield the gradients of consecutive sub-batches as rows of matrices."""
    rows = piece_rows(session, batch, plan, names, losses, entries)
    if plan.simple:
        yield from rows
        return
    yield from (gradient[None] for gradient in sums_of_pieces(rows, plan.weights))


def sums_of_pieces(
    rows: Iterable[Tensor], weights: Tensor, in_place: bool = False
) -> Iterator[Tensor]:
    """Yield ``g_d = sum_s weights[d, s] g_s`` in order, each once its last piece is known.

    Args:
        rows: The gradients of the pieces in order, as rows of one or more matrices.
        weights: Shape ``(D, pieces)``; every sub-batch has a piece.
        in_place: Add to a sum in place: one vector less in memory, and a fused multiply-add, which
            rounds once instead of twice.
    """
    last = [int(of_pieces.nonzero().max()) for of_pieces in weights]
    sums: dict[int, Tensor] = {}
    for s, gradient in enumerate(gradient for matrix in rows for gradient in matrix):
        for d in weights[:, s].nonzero().flatten().tolist():
            weight = float(weights[d, s])
            if in_place and d in sums:
                sums[d].add_(gradient, alpha=weight)
            else:
                sums[d] = sums.get(d, 0) + weight * gradient
        for d in [d for d in sums if last[d] == s]:
            yield sums.pop(d)


def piece_rows(
    session: Session,
    batch: Batch,
    plan: Plan,
    names: Sequence[str],
    losses: list[Tensor] | None = None,
    entries: int | None = None,
) -> Iterator[Tensor]:
    """Yield the gradients of pieces as rows of matrices; append their losses to ``losses``."""
    problem = session.problem
    samples, pieces = streamed_samples(plan), streamed_pieces(problem)
    if entries is not None:
        samples = plan.microbatch or plan.samples
        pieces = max(1, entries // sum(problem.start[n].numel() for n in names))
    yield from rows_of(passes_over(session, batch, plan, names, samples, pieces), losses)


def rows_of(passes: Iterable[Pass], losses: list[Tensor] | None = None) -> Iterator[Tensor]:
    """Yield the gradients of passes as rows of matrices; append their losses to ``losses``."""
    for each in passes:
        if losses is not None:
            losses.extend(each.losses)
        yield each.rows


def _losses_of_all(
    problem: Problem, plan: Plan, pieces: Sequence[int], own: list[Tensor]
) -> list[Tensor]:
    """The loss of every piece, on every rank; a piece that two ranks compute is averaged."""
    table = torch.zeros(2, len(plan.pieces), dtype=torch.float64, device="cpu")
    if own:
        table[0, list(pieces)] = to_cpu_double(torch.stack(own))
        table[1, list(pieces)] = 1.0
    total, computed = problem.ranks.sum(table)
    return list(total / computed)
