"""Sums of Hessian-vector products, by the scales, with one graph at a time: for ``Stream``.

Each function yields parts of ``<W_k, sum_d [H_d v_d]_k>`` for every scale, float64 on the device.
Their sum is the derivative of the objective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.gradients.directions import Directions
from neuroinit.gradients.passes.first_order import sub_batch_gradients
from neuroinit.gradients.passes.pieces import Pass
from neuroinit.gradients.passes.planned import passes_over, streamed_pieces, streamed_samples
from neuroinit.gradients.passes.second_order import second_backward
from neuroinit.gradients.plan import Plan
from neuroinit.model.session import Session


def _graphs(session: Session, batch: Batch, plan: Plan) -> Iterator[Pass]:
    names, pieces = session.problem.differentiated, streamed_pieces(session.problem)
    samples = streamed_samples(plan)
    return passes_over(session, batch, plan, names, samples, pieces, create_graph=True)


def simple_products(
    session: Session, batch: Batch, plan: Plan, found: Directions
) -> Iterator[Tensor]:
    """Yield the products of a plan in which every sub-batch is one piece.

    The gradient of a piece and its Hessian-vector product come from the same graph.
    """
    start = 0
    for graphs in _graphs(session, batch, plan):
        directions = found.of(start, graphs.rows)
        start += len(graphs.losses)
        yield second_backward(session, [graphs], directions, retain_graph=plan.one_forward)


def known_products(
    session: Session, batch: Batch, plan: Plan, directions: Tensor
) -> Iterator[Tensor]:
    """Yield the products for given directions, a matrix of shape ``(pieces, parameters)``."""
    start = 0
    for graphs in _graphs(session, batch, plan):
        stop = start + len(graphs.losses)
        yield second_backward(session, [graphs], directions[start:stop])
        start = stop


def rolling_products(
    session: Session, batch: Batch, plan: Plan, found: Directions
) -> Iterator[Tensor]:
    """Yield the products of a plan in which sub-batches share pieces.

    The direction of a piece is the weighted sum of those of its sub-batches, so its product is
    computed once the last of them is known.
    """
    waiting: dict[int, Tensor] = {}
    ready: list[int] = []
    last = [int(column.nonzero().max()) if column.any() else 0 for column in plan.weights.T]
    most, names = streamed_pieces(session.problem), session.problem.differentiated
    for d, gradient in enumerate(sub_batch_gradients(session, batch, plan, names)):
        direction = found.of(d, gradient[None])[0]
        for s in plan.weights[d].nonzero().flatten().tolist():
            waiting[s] = waiting.get(s, 0) + float(plan.weights[d, s]) * direction
        ready += [s for s in waiting if last[s] == d]
        if len(ready) >= most or d == len(plan.weights) - 1:
            part = replace(plan, pieces=tuple(plan.pieces[s] for s in ready))
            directions = torch.stack([waiting.pop(s) for s in ready])
            yield from known_products(session, batch, part, directions)
            ready = []
