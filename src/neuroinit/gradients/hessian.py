"""Products with the Hessian of one sub-batch, and third derivatives, for GradInit and MetaInit.

Sub-batch ``d`` of a plan has the gradient ``g = sum_s a_s g_s`` over its pieces, and the same holds
for everything that is linear in the loss: ``H v = sum_s a_s H_s v``. A graph needs one piece only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.errors import named_operator
from neuroinit.common.tensors import flatten, sum_dtype, unflatten, zeros_if_missing
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.over_ranks import zero_gradient
from neuroinit.gradients.passes.first_order import rows_of, sums_of_pieces
from neuroinit.gradients.passes.pieces import Pass, one_by_one
from neuroinit.gradients.plan import Plan, part_of
from neuroinit.kernels.function_mode import differentiate_graphs
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session

ScalarFunction = Callable[[Tensor, Tensor], Tensor]


@contextmanager
def gradient_and_product(
    point: Point, batch: Batch, plan: Plan, engine: Engine
) -> Iterator[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]:
    """A context with the loss and gradient of the first sub-batch, and products with its Hessian.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        engine: If it keeps graphs, those of the first pass are differentiated again; otherwise they
            are computed again, one at a time.

    Yields:
        The loss; its gradient by all parameters as a flat vector; and a function of a flat vector
        ``v``, which may be called once, that returns ``<W_k, [H v]_k>`` for every scale. All are on
        the device.
    """
    problem = point.problem
    own, names = _own_pieces(problem, plan), problem.differentiated
    with (
        point.session(second_order=True, scale_variables=True) as session,
        named_operator(),
    ):
        if not engine.keeps_graphs:
            product = partial(_hessian_product, session, batch, own)
            yield *_first_order(session, batch, own, names), product
            return
        graphs = list(_graphs(session, batch, own))
        loss, gradient = _loss_and_gradient(problem, own, graphs, names, in_place=False)
        yield loss, gradient, partial(_product_of_graphs, session, own, graphs)


def gradient(
    point: Point, batch: Batch, plan: Plan, names: Sequence[str], sub_batch: int = 0
) -> tuple[Tensor, Tensor]:
    """The loss of a sub-batch and its gradient by some parameters, as a flat vector."""
    own = _own_pieces(point.problem, plan, sub_batch)
    with point.session() as session:
        return _first_order(session, batch, own, names)


def curvature_derivative(
    point: Point, batch: Batch, plan: Plan, function: ScalarFunction, engine: Engine
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A function of the gradient ``g`` and of ``h = H g``, and its derivative by the scales.

    With ``a`` and ``b`` the derivatives of the function by ``g`` and ``h``, its derivative by the
    parameters is of third order:

        H a + H (H b) + d<b, H c>/dtheta   at a constant c = g.

    With an engine that keeps graphs, autograd differentiates one graph. Otherwise, and with several
    ranks, four passes hold the graph of one piece at a time.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: The pieces of its one sub-batch.
        function: ``function(g, h)``, a scalar.
        engine: Decides whether graphs are kept.

    Returns:
        Loss, ``g``, the function's value, and its derivative by every scale, all on the device.
    """
    one_graph = engine.keeps_graphs and point.problem.ranks.alone
    own = _own_pieces(point.problem, plan)
    with point.session(second_order=True) as session, named_operator():
        return (_in_one_graph if one_graph else _in_passes)(session, batch, own, function)


# -- pieces ----------------------------------------------------------------------------------------


def _own_pieces(problem: Problem, plan: Plan, sub_batch: int = 0) -> Plan:
    """The plan of the pieces of one sub-batch that this rank computes; it may have none."""
    used = plan.weights[sub_batch].nonzero().flatten().tolist()
    return plan.part([sub_batch], part_of(used, problem.ranks.rank, problem.ranks.world))


def _weights(own: Plan) -> list[float]:
    """The weight ``a_s`` of every piece."""
    weights: list[float] = own.weights[0].tolist()
    return weights


def _graphs(session: Session, batch: Batch, own: Plan) -> Iterator[Pass]:
    """Yield one pass per piece, with the graph of its gradient."""
    names = session.problem.differentiated
    return one_by_one(session, batch, own.pieces, names, True, own.one_forward)


def _first_order(
    session: Session, batch: Batch, own: Plan, names: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """The loss and the gradient of the sub-batch, with one graph at a time."""
    passes = one_by_one(session, batch, own.pieces, names, False, own.one_forward)
    return _loss_and_gradient(session.problem, own, passes, names, in_place=True)


def _loss_and_gradient(
    problem: Problem, own: Plan, passes: Iterable[Pass], names: Sequence[str], in_place: bool
) -> tuple[Tensor, Tensor]:
    """The loss and the flat gradient of the sub-batch, summed over pieces and ranks."""
    if not own.pieces:
        gradient = zero_gradient(problem, names)
        loss = torch.zeros((), dtype=torch.float64, device=problem.device)
    else:
        losses: list[Tensor] = []
        (gradient,) = sums_of_pieces(rows_of(passes, losses), own.weights, in_place)
        loss = _weighted_loss(own, losses)
    return problem.ranks.sum(loss.to(sum_dtype(loss))), problem.ranks.sum(gradient)


def _weighted_loss(own: Plan, losses: Sequence[Tensor]) -> Tensor:
    """The loss of the sub-batch, on the device."""
    values = torch.stack(list(losses))
    return torch.dot(values, own.weights[0].to(values))


def _hessian_product(session: Session, batch: Batch, own: Plan, v: Tensor) -> Tensor:
    """``<W_k, [H v]_k>`` for every scale, with one graph at a time."""
    parts = [
        session.second_backward(piece.gradients, unflatten(a * v, piece.gradients))
        for a, piece in zip(_weights(own), _graphs(session, batch, own), strict=True)
    ]
    return _sum_of_parts(session.problem, parts)


def _product_of_graphs(session: Session, own: Plan, graphs: list[Pass], v: Tensor) -> Tensor:
    """``<W_k, [H v]_k>`` for every scale, from the graphs of all pieces."""
    outputs = [g for piece in graphs for g in piece.gradients]
    vectors = [
        part
        for a, piece in zip(_weights(own), graphs, strict=True)
        for part in unflatten(a * v, piece.gradients)
    ]
    return session.problem.ranks.sum(session.second_backward(outputs, vectors))


def _sum_of_parts(problem: Problem, parts: list[Tensor]) -> Tensor:
    """Derivatives by the scales, summed over pieces and ranks; ``parts`` may be empty."""
    total = torch.zeros_like(problem.unit_scales, device=problem.device)
    if parts:
        total = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
    return problem.ranks.sum(total)


def _full_product(session: Session, batch: Batch, own: Plan, v: Tensor) -> Tensor:
    """``H v`` by all parameters, as a flat vector."""
    theta = session.point.tensors(session.problem.differentiated)
    total = torch.zeros_like(v)
    for a, piece in zip(_weights(own), _graphs(session, batch, own), strict=True):
        total.add_(flatten(_vector_jacobian(theta, piece.gradients, v)), alpha=a)
    return session.problem.ranks.sum(total)


def _vector_jacobian(
    theta: list[Tensor], outputs: Sequence[Tensor], v: Tensor, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """The derivative of ``<outputs, v>`` by ``theta``; zeros for tensors it does not depend on."""
    found = differentiate_graphs(outputs, theta, unflatten(v, outputs), create_graph)
    return zeros_if_missing(found, theta)


# -- third order -----------------------------------------------------------------------------------


def _in_one_graph(
    session: Session, batch: Batch, own: Plan, function: ScalarFunction
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    theta = session.point.tensors(session.problem.differentiated)
    weighted = list(zip(_weights(own), _graphs(session, batch, own), strict=True))
    loss = _weighted_loss(own, [piece.losses[0] for _, piece in weighted])
    g = tuple(
        torch.stack([a * piece.gradients[k] for a, piece in weighted]).sum(0)
        for k in range(len(theta))
    )
    half_square = torch.stack([part.square().sum().to(g[0].device) for part in g]).sum() / 2
    one = torch.ones_like(half_square).reshape(1)
    h = _vector_jacobian(theta, (half_square,), one, create_graph=True)
    flat = flatten(g)
    value, a, b = _derivatives(function, flat, flatten(h))
    vectors = [*unflatten(a, g), *unflatten(b, h)]
    return loss, flat, value, session.second_backward([*g, *h], vectors)


def _in_passes(
    session: Session, batch: Batch, own: Plan, function: ScalarFunction
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    theta = session.point.tensors(session.problem.differentiated)
    loss, g = _first_order(session, batch, own, session.problem.differentiated)
    value, a, b = _derivatives(function, g, _full_product(session, batch, own, g))
    a = a + _full_product(session, batch, own, b)
    parts = []
    for weight, piece in zip(_weights(own), _graphs(session, batch, own), strict=True):
        h = _vector_jacobian(theta, piece.gradients, g, create_graph=True)
        vectors = [*unflatten(weight * a, piece.gradients), *unflatten(weight * b, h)]
        parts.append(session.second_backward([*piece.gradients, *h], vectors))
    return loss, g, value, _sum_of_parts(session.problem, parts)


def _derivatives(function: ScalarFunction, g: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The function's value and its derivatives by ``g`` and ``h``."""
    g, h = g.detach().requires_grad_(), h.detach().requires_grad_()
    value = function(g, h)
    by_g, by_h = torch.autograd.grad(value, [g, h])
    return value.detach(), by_g, by_h
