"""Gradients of pieces and sub-batches as flat vectors, by first-order passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.tensors import to_cpu_double
from neuroinit.gradients.directions import on_every_rank
from neuroinit.gradients.pieces import passes_over, streamed_pieces, streamed_samples
from neuroinit.gradients.plan import Plan, share_of
from neuroinit.gradients.trials import try_separating
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session


def gradients(
    point: Point, batch: Batch, plan: Plan, losses: list[Tensor], names: Sequence[str]
) -> Iterator[Tensor]:
    """The gradient of every sub-batch, one at a time, the same on every rank.

    Args:
        point: Where the parameters stand.
        batch: A prepared batch.
        plan: Its pieces.
        losses: The loss of every piece is appended to it.
        names: The parameters.
    """
    problem = point.problem
    if problem.ranks.alone:
        if not plan.one_forward:
            try_separating(point, batch)
        with point.session() as session:
            for _, gradient in sub_batch_gradients(session, batch, plan, names, losses):
                yield gradient
        return
    share = share_of(plan, problem.ranks.rank, problem.ranks.world)
    own: list[Tensor] = []
    with problem.ranks.together():
        if share.pieces and not plan.one_forward:
            try_separating(point, batch)
        with point.session() as session:
            found = sub_batch_gradients(session, batch, share.plan, names, own)
            parts = [gradient for _, gradient in found]
            losses += _losses_of_all(problem, plan, share.pieces, own)
    yield from on_every_rank(problem, len(plan.weights), share, parts, names)


def sub_batch_gradients(
    session: Session,
    batch: Batch,
    plan: Plan,
    names: Sequence[str],
    losses: list[Tensor] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """``(d, g_d)`` in order, ``g_d = sum_s weights[d, s] g_s``.

    Holds only the sub-batches that are begun and not complete.
    """
    last = [int(weights.nonzero().max()) for weights in plan.weights]
    begun: dict[int, Tensor] = {}
    for s, gradient in enumerate(piece_gradients(session, batch, plan, names, losses)):
        for d in plan.weights[:, s].nonzero().flatten().tolist():
            begun[d] = begun.get(d, 0) + float(plan.weights[d, s]) * gradient
        for d in [d for d in begun if last[d] == s]:
            yield d, begun.pop(d)


def piece_gradients(
    session: Session,
    batch: Batch,
    plan: Plan,
    names: Sequence[str],
    losses: list[Tensor] | None = None,
) -> Iterator[Tensor]:
    """The gradient of every piece; its loss is appended to ``losses``."""
    problem = session.problem
    samples, pieces = streamed_samples(problem, batch, plan), streamed_pieces(problem)
    for made in passes_over(session, batch, plan, names, samples, pieces):
        if losses is not None:
            losses.extend(made.losses)
        yield from made.vectors


def _losses_of_all(
    problem: Problem, plan: Plan, pieces: Sequence[int], own: list[Tensor]
) -> list[Tensor]:
    """The loss of every piece on every rank; overlapping sub-batches may compute one twice."""
    table = torch.zeros(2, len(plan.pieces), dtype=torch.float64, device="cpu")
    for piece, loss in zip(pieces, own, strict=True):
        table[:, piece] = torch.stack([to_cpu_double(loss), to_cpu_double(torch.ones_like(loss))])
    total, computed = problem.ranks.sum(table)
    return list(total / computed)
