"""Sub-batch gradients, their moments, and the derivative of an objective by the scales.

The heart of the library: *gradients -> Gram matrix -> objective -> Hessian-vector products*. With
``v_d`` the derivative of the objective by ``g_d``,

    dPhi/dw_k = < W_k , [ sum_d H_d v_d ]_k >,

so no autograd graph ever has to span two sub-batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import batch_size
from neuroinit.common.errors import named_operator
from neuroinit.common.tensors import combine, narrow, spread
from neuroinit.gradients.backward import check_derivative
from neuroinit.gradients.directions import (
    AllGradients,
    Collector,
    MeanDirection,
    Objective,
    all_rows,
)
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.pieces import Group, backward_through, few, passes_over, quarter
from neuroinit.gradients.plan import Plan, share
from neuroinit.model.problem import Problem

HELD_PIECES = 8  # `stream` holds the gradients of so few pieces that overlap, or more if small


@dataclass(frozen=True)
class Derivative:
    """An objective and its derivative by the scales.

    Args:
        value: The objective.
        gradient: ``dPhi/dw_k`` in the order of ``problem.scaled``, float64 on the CPU.
        moments: Norms and GradCosine of the sub-batch gradients.
        loss: Mean of the sub-batch losses.
    """

    value: float
    gradient: Tensor
    moments: Moments
    loss: float


def derivative(
    problem: Problem,
    batch: Any,
    plan: Plan,
    objective: Objective,
    engine: str = "keep",
    gram: bool = False,
) -> Derivative:
    """The exact derivative of an objective of the sub-batch gradients by the scales.

    Args:
        problem: Where the scales were set by ``problem.place``.
        batch: A prepared batch.
        plan: Its pieces.
        objective: Function of :class:`Moments`.
        engine: ``"keep"`` holds the first-order graphs of all pieces and goes back through them
            once; ``"stream"`` holds one at a time.
        gram: The objective reads ``moments.gram``, for which all ``D`` gradients are held.
    """
    ranks, count = problem.ranks, len(plan.weights)
    own = share(plan, ranks.rank, ranks.world)
    collector = (AllGradients if gram else MeanDirection)(problem, count, own)
    with ranks.together(), named_operator():
        if own.rows:
            found = ENGINES[engine](problem, batch, own.plan, objective, collector)
        else:  # more ranks than there is work
            value = collector.close(objective)
            nothing = torch.zeros_like(problem.unit_scales)
            found = Derivative(float(value), nothing, collector.moments, 0.0)
        loss = torch.tensor([found.loss * len(own.rows) / count], dtype=torch.float64, device="cpu")
        *by_scale, loss = ranks.sum(torch.cat([found.gradient, loss]))
        return replace(found, gradient=torch.stack(by_scale), loss=float(loss))


# -- the two engines -------------------------------------------------------------------------------


def _keep(
    problem: Problem, batch: Any, plan: Plan, objective: Objective, collector: Collector
) -> Derivative:
    """All graphs are kept until the second backward."""
    at_once = plan.microbatch or batch_size(batch)
    with problem.session(second_order=True, marked=True):
        groups = list(passes_over(problem, batch, plan, at_once, create_graph=True))
        losses = [loss for group in groups for loss in group.losses]
        flat = [vector for group in groups for vector in group.vectors]
        value, directions = _directions(plan, flat, objective, collector)
        del flat
        by_scale = backward_through(problem, groups, directions)
    return _derivative(problem, value, by_scale, collector, plan, losses)


def _stream(
    problem: Problem, batch: Any, plan: Plan, objective: Objective, collector: Collector
) -> Derivative:
    """A first-order pass for the moments, then one second-order graph at a time."""
    losses: list[Tensor] = []
    if plan.simple or len(plan.pieces) > max(HELD_PIECES, few(problem)):
        with problem.session():
            for _, gradient in sub_batch_gradients(problem, batch, plan, losses):
                collector.add(gradient)
        value = collector.close(objective)
        make = _simple_products if plan.simple else _rolling_products
        products = make(problem, batch, plan, collector)
    else:
        with problem.session():
            flat = list(_piece_gradients(problem, batch, plan, losses))
        value, directions = _directions(plan, flat, objective, collector)
        del flat
        products = _known_products(problem, batch, plan, iter(directions))
    with problem.session(second_order=True, marked=True):
        by_scale = sum(products, torch.zeros(()))
    return _derivative(problem, value, by_scale, collector, plan, losses)


def _directions(
    plan: Plan, flat: list[Tensor], objective: Objective, collector: Collector
) -> tuple[Tensor, list[Tensor]]:
    """The objective, and the direction of every piece, from the gradients of all pieces."""
    for weights in plan.weights:
        collector.add(combine(weights, flat))
    value = collector.close(objective)
    directions = [torch.zeros_like(vector) for vector in flat]
    for d, weights in enumerate(plan.weights):
        spread(weights, collector.direction(d, combine(weights, flat)), directions)
    return value, directions


ENGINES: dict[str, Callable[..., Derivative]] = {"keep": _keep, "stream": _stream}


def _graphs(problem: Problem, batch: Any, plan: Plan) -> Iterator[Group]:
    """One graph at a time."""
    at_once, most = quarter(batch, plan), few(problem)
    return passes_over(problem, batch, plan, at_once, create_graph=True, most=most)


def _simple_products(
    problem: Problem, batch: Any, plan: Plan, collector: Collector
) -> Iterator[Tensor]:
    """Every sub-batch is one piece: its gradient and its product come from the same graph."""
    count = itertools.count()
    for group in _graphs(problem, batch, plan):
        directions = [collector.direction(next(count), vector) for vector in group.vectors]
        yield backward_through(problem, [group], directions, plan.whole)


def _known_products(
    problem: Problem, batch: Any, plan: Plan, directions: Iterator[Tensor]
) -> Iterator[Tensor]:
    """All directions are known."""
    for group in _graphs(problem, batch, plan):
        own = list(itertools.islice(directions, len(group.losses)))
        yield backward_through(problem, [group], own)


def _rolling_products(
    problem: Problem, batch: Any, plan: Plan, collector: Collector
) -> Iterator[Tensor]:
    """Sub-batches share pieces: a piece is differentiated once all its sub-batches are known."""
    waiting: dict[int, Tensor] = {}
    ready: list[int] = []
    last = [int(column.nonzero().max()) if column.any() else 0 for column in plan.weights.T]
    most = few(problem)
    for d, gradient in sub_batch_gradients(problem, batch, plan):
        direction = collector.direction(d, gradient)
        for s in plan.weights[d].nonzero().flatten().tolist():
            waiting[s] = waiting.get(s, 0) + float(plan.weights[d, s]) * direction
        ready += [s for s in waiting if last[s] == d]
        if len(ready) >= most or d == len(plan.weights) - 1:
            part = replace(plan, pieces=tuple(plan.pieces[s] for s in ready))
            directions = iter([waiting.pop(s) for s in ready])
            yield from _known_products(problem, batch, part, directions)
            ready = []


def sub_batch_gradients(
    problem: Problem,
    batch: Any,
    plan: Plan,
    losses: list[Tensor] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """``(d, g_d)`` in order, holding only the sub-batches that are begun and not complete."""
    last = [int(row.nonzero().max()) for row in plan.weights]
    begun: dict[int, Tensor] = {}
    for s, gradient in enumerate(_piece_gradients(problem, batch, plan, losses, names)):
        for d in plan.weights[:, s].nonzero().flatten().tolist():
            begun[d] = begun.get(d, 0) + float(plan.weights[d, s]) * gradient
        for d in [d for d in begun if last[d] == s]:
            yield d, begun.pop(d)


def _piece_gradients(
    problem: Problem,
    batch: Any,
    plan: Plan,
    losses: list[Tensor] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[Tensor]:
    """The gradient of every piece, by first-order passes."""
    at_once, most = quarter(batch, plan), few(problem)
    for group in passes_over(problem, batch, plan, at_once, names=names, most=most):
        if losses is not None:
            losses.extend(group.losses)
        yield from group.vectors


# -- gradients as flat vectors ---------------------------------------------------------------------


def gradients(
    problem: Problem, batch: Any, plan: Plan, losses: list[Tensor], names: Sequence[str]
) -> Iterator[Tensor]:
    """The gradient of every sub-batch as a flat vector, one at a time, by first-order passes.

    Args:
        problem: Where the scales were set by ``problem.place``.
        batch: A prepared batch.
        plan: Its pieces.
        losses: The loss of every piece is appended to it.
        names: The parameters.
    """
    ranks = problem.ranks
    if ranks.alone:
        with problem.session():
            for _, gradient in sub_batch_gradients(problem, batch, plan, losses, names):
                yield gradient
        return
    own = share(plan, ranks.rank, ranks.world)
    mine: list[Tensor] = []
    with ranks.together(), problem.session():
        parts = [g for _, g in sub_batch_gradients(problem, batch, own.plan, mine, names)]
        losses += _all_losses(problem, plan, own.columns, mine)
    yield from all_rows(problem, len(plan.weights), own, parts, names)


def _all_losses(
    problem: Problem, plan: Plan, columns: Sequence[int], own: list[Tensor]
) -> list[Tensor]:
    """The loss of every piece on every rank; overlapping sub-batches may have it twice."""
    table = torch.zeros(2, len(plan.pieces), dtype=torch.float64, device="cpu")
    for column, loss in zip(columns, own, strict=True):
        table[:, column] = torch.stack([narrow(loss), narrow(torch.ones_like(loss))])
    total, computed = problem.ranks.sum(table)
    return list(total / computed)


def _derivative(
    problem: Problem,
    value: Tensor,
    gradient: Tensor,
    collector: Collector,
    plan: Plan,
    losses: list[Tensor],
) -> Derivative:
    """Check that all of it is finite."""
    check_derivative(problem, gradient)
    loss = float((plan.weights @ narrow(torch.stack(losses))).mean())
    return Derivative(float(value), gradient, collector.moments, loss)
