"""Sub-batch gradients, their moments, and the derivative of an objective by the scales.

The heart of the library: *gradients -> Gram matrix -> objective -> Hessian-vector products*. With
``v_d`` the derivative of the objective by ``g_d``,

    dPhi/dw_k = < W_k , [ sum_d H_d v_d ]_k >,

so no autograd graph ever has to span two sub-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuroinit.borrow import differentiate
from neuroinit.collect import AllGradients, Collector, MeanDirection, Objective, all_rows
from neuroinit.errors import (
    REENTRANT,
    NonFiniteError,
    listed,
    named_operator,
    no_double_backward,
)
from neuroinit.measures import Moments
from neuroinit.plan import Plan, share
from neuroinit.problem import Problem
from neuroinit.vectors import combine, dot, flatten, narrow, spread, unflatten


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
    with ranks.together():
        if own.rows:
            with problem.session(second_order=True), named_operator():
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
    """All graphs are kept, and one second backward goes through them."""
    losses, graphs = [], []
    for loss in problem.losses(batch, plan.pieces, plan.whole):
        graphs.append(_gradient(problem, loss, create_graph=True))
        losses.append(loss.detach())
    flat = [flatten(graph) for graph in graphs]
    for weights in plan.weights:
        collector.add(combine(weights, flat))
    value = collector.close(objective)
    directions = [torch.zeros_like(vector) for vector in flat]
    for d, weights in enumerate(plan.weights):
        spread(weights, collector.direction(d, combine(weights, flat)), directions)
    del flat
    products = _second_backward(problem, graphs, directions)
    return _derivative(problem, value, products, collector, plan, losses)


def _stream(
    problem: Problem, batch: Any, plan: Plan, objective: Objective, collector: Collector
) -> Derivative:
    """A first-order pass for the moments, then one second-order graph at a time."""
    losses: list[Tensor] = []
    for _, gradient in _sub_batch_gradients(problem, batch, plan, losses):
        collector.add(gradient)
    value = collector.close(objective)
    products = _simple_products if plan.simple else _rolling_products
    total = _total(products(problem, batch, plan, collector), len(problem.scaled))
    return _derivative(problem, value, total, collector, plan, losses)


ENGINES: dict[str, Callable[..., Derivative]] = {"keep": _keep, "stream": _stream}


def _simple_products(
    problem: Problem, batch: Any, plan: Plan, collector: Collector
) -> Iterator[list[Tensor | None]]:
    """Every sub-batch is one piece: its gradient and its product come from the same graph."""
    for d, loss in enumerate(problem.losses(batch, plan.pieces, plan.whole)):
        graph = _gradient(problem, loss, create_graph=True)
        direction = collector.direction(d, flatten(graph))
        yield _second_backward(problem, [graph], [direction], retain_graph=plan.whole)


def _rolling_products(
    problem: Problem, batch: Any, plan: Plan, collector: Collector
) -> Iterator[list[Tensor | None]]:
    """Sub-batches share pieces: a piece is differentiated once all its sub-batches are known."""
    waiting: dict[int, Tensor] = {}
    last = [int(column.nonzero().max()) for column in plan.weights.T]
    for d, gradient in _sub_batch_gradients(problem, batch, plan):
        direction = collector.direction(d, gradient)
        for s in plan.weights[d].nonzero().flatten().tolist():
            waiting[s] = waiting.get(s, 0) + float(plan.weights[d, s]) * direction
        for s in [s for s in waiting if last[s] == d]:
            (loss,) = problem.losses(batch, [plan.pieces[s]], plan.whole)
            graph = _gradient(problem, loss, create_graph=True)
            yield _second_backward(problem, [graph], [waiting.pop(s)])


def _sub_batch_gradients(
    problem: Problem,
    batch: Any,
    plan: Plan,
    losses: list[Tensor] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """``(d, g_d)`` in order, holding only the sub-batches that are begun and not complete."""
    last = [int(row.nonzero().max()) for row in plan.weights]
    begun: dict[int, Tensor] = {}
    for s, loss in enumerate(problem.losses(batch, plan.pieces, plan.whole)):
        gradient = flatten(_gradient(problem, loss, names, retain_graph=plan.whole))
        if losses is not None:
            losses.append(loss.detach())
        for d in plan.weights[:, s].nonzero().flatten().tolist():
            begun[d] = begun.get(d, 0) + float(plan.weights[d, s]) * gradient
        for d in [d for d in begun if last[d] == s]:
            yield d, begun.pop(d)


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
            for _, gradient in _sub_batch_gradients(problem, batch, plan, losses, names):
                yield gradient
        return
    own = share(plan, ranks.rank, ranks.world)
    mine: list[Tensor] = []
    with ranks.together(), problem.session():
        parts = [g for _, g in _sub_batch_gradients(problem, batch, own.plan, mine, names)]
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


def _gradient(
    problem: Problem,
    loss: Tensor,
    names: Sequence[str] | None = None,
    create_graph: bool = False,
    retain_graph: bool = False,
) -> tuple[Tensor, ...]:
    """The gradient of a loss by every parameter that is looked at; zeros where it is unused."""
    if not torch.isfinite(loss):
        raise NonFiniteError(
            f"The loss is not finite: {loss.item()}. The start is too large, the inputs are not "
            "finite, or the learning rate `lr` of the scales is too high."
        )
    if not loss.requires_grad:
        raise ValueError(
            "The loss does not depend on any trainable parameter. Return it with its graph: no "
            "`.item()`, `.detach()` or `torch.no_grad()` between the model and the loss."
        )
    theta = problem.theta(problem.differentiated if names is None else names)
    found = differentiate([loss], theta, create_graph=create_graph, retain_graph=retain_graph)
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(found, theta, strict=True))


def _second_backward(
    problem: Problem,
    graphs: Sequence[tuple[Tensor, ...]],
    directions: Sequence[Tensor],
    retain_graph: bool = False,
) -> list[Tensor | None]:
    """``sum_s H_s v_s`` by every scaled parameter: one backward through the gradients' graphs."""
    outputs, vectors = [], []
    for graph, direction in zip(graphs, directions, strict=True):
        for gradient, vector in zip(graph, unflatten(direction, graph), strict=True):
            if gradient.requires_grad:
                outputs.append(gradient)
                vectors.append(vector)
    theta = problem.theta(problem.scaled)
    if not outputs:
        return [None] * len(theta)
    return list(differentiate(outputs, theta, vectors, retain_graph=retain_graph))


def _total(parts: Iterator[list[Tensor | None]], count: int) -> list[Tensor | None]:
    total: list[Tensor | None] = [None] * count
    for part in parts:
        total = [
            a if b is None else b if a is None else a + b for a, b in zip(total, part, strict=True)
        ]
    return total


def _derivative(
    problem: Problem,
    value: Tensor,
    products: Sequence[Tensor | None],
    collector: Collector,
    plan: Plan,
    losses: list[Tensor],
) -> Derivative:
    """Contract the Hessian-vector products with ``W``: one number a tensor."""
    by_scale = [
        0.0 if h is None else dot(problem.start[n], h)
        for n, h in zip(problem.scaled, products, strict=True)
    ]
    gradient = torch.stack([torch.as_tensor(g, dtype=torch.float64).cpu() for g in by_scale])
    bad = [n for n, g in zip(problem.scaled, gradient, strict=True) if not torch.isfinite(g)]
    if bad:
        raise NonFiniteError(f"The derivative by the scale of {listed(bad)} is not finite.")
    loss = float((plan.weights @ narrow(torch.stack(losses))).mean())
    return Derivative(float(value), gradient, collector.moments, loss)


def check_graph(problem: Problem, gradient: Sequence[Tensor]) -> None:
    """Raise if the graph cannot be differentiated again, or goes past the scaled parameters.

    ``torch.autograd.grad`` would pass both by without an error and return a wrong derivative.
    """
    originals = {id(p): n for n, p in problem.parameters.items()}
    waiting: list[Any] = [g.grad_fn for g in gradient if g.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if "autograd::Error" in node.name():
            raise RuntimeError(no_double_backward("A function marked `@once_differentiable`"))
        if node.name().startswith("CheckpointFunction"):
            raise RuntimeError(REENTRANT)
        name = originals.get(id(getattr(node, "variable", None)))
        if name is not None:
            raise ValueError(
                f"The forward pass uses `{name}` through a reference of its own, past the module "
                "that holds it, so it cannot be scaled there. Read it as an attribute of its "
                "module in `forward`, or keep such tensors in an `nn.ParameterList`."
            )
        new = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= new
        waiting.extend(new)


def first_order_graph(problem: Problem, batch: Any, plan: Plan, piece: int) -> tuple[Tensor, ...]:
    """One piece's gradient with its graph, as the engines build it."""
    with problem.session(second_order=True), named_operator():
        (loss,) = problem.losses(batch, [plan.pieces[piece]], plan.whole)
        return _gradient(problem, loss, create_graph=True)
