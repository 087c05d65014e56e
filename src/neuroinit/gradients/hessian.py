"""Products with the Hessian of one sub-batch, and third derivatives, for GradInit and MetaInit.

Sub-batch ``d`` of a plan has the gradient ``g = sum_s a_s g_s`` over its pieces, and the same holds
for everything that is linear in the loss: ``H v = sum_s a_s H_s v``. No graph spans two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.errors import named_operator
from neuroinit.common.tensors import flatten, sum_dtype, unflatten, zeros_if_missing
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, part_of
from neuroinit.kernels.function_mode import differentiate_graphs
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session

ScalarFunction = Callable[[Tensor, Tensor], Tensor]
Graph = tuple[float, Tensor, tuple[Tensor, ...]]  # weight a_s, loss L_s, gradient g_s


def gradient_and_product(
    point: Point,
    batch: Batch,
    plan: Plan,
    direction: Callable[[Tensor, Tensor], Tensor | None],
    engine: Engine,
) -> Tensor | None:
    """``H v`` for ``v = direction(loss, g)``, with loss and gradient ``g`` of the first sub-batch.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        direction: Returns ``v``, from the loss and from ``g``, the gradient by all parameters as a
            flat vector, both on the device; or ``None`` if no product is needed.
        engine: If it keeps graphs, those of the first pass are differentiated again; otherwise they
            are computed again, one at a time.

    Returns:
        ``<W_k, [H v]_k>`` for every scale, on the device; ``None`` without a direction.
    """
    ranks = point.problem.ranks
    with (
        point.session(second_order=True, scale_variables=True) as session,
        named_operator(),
    ):
        graphs: list[Graph] = []
        if engine.keeps_graphs:
            graphs = list(_graphs(session, batch, plan, 0))
            loss, gradient = _sum_of_graphs(point.problem, graphs)
        else:
            loss, gradient = _first_order(session, batch, plan, 0)
        v = direction(loss, gradient)
        if v is None:
            return None
        if not engine.keeps_graphs:
            return _hessian_product(session, batch, plan, v)
        outputs = [g for _, _, piece in graphs for g in piece]
        vectors = [part for a, _, piece in graphs for part in unflatten(a * v, piece)]
        return ranks.sum(session.second_backward(outputs, vectors))


def gradient(
    point: Point, batch: Batch, plan: Plan, names: Sequence[str], sub_batch: int = 0
) -> tuple[Tensor, Tensor]:
    """The loss of a sub-batch and its gradient by some parameters, as a flat vector."""
    with point.session() as session:
        return _first_order(session, batch, plan, sub_batch, names)


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
    with point.session(second_order=True) as session, named_operator():
        return (_in_one_graph if one_graph else _in_passes)(session, batch, plan, function)


# -- pieces ----------------------------------------------------------------------------------------


def _graphs(
    session: Session,
    batch: Batch,
    plan: Plan,
    sub_batch: int,
    create_graph: bool = True,
    names: Sequence[str] | None = None,
) -> Iterator[Graph]:
    """Yield weight, loss and gradient of the sub-batch's pieces that this rank computes."""
    ranks, names = session.problem.ranks, names or session.problem.differentiated
    weighted = zip(plan.weights[sub_batch].tolist(), plan.pieces, strict=True)
    used = part_of([(a, piece) for a, piece in weighted if a], ranks.rank, ranks.world)
    losses = session.losses(batch, [piece for _, piece in used], plan.one_forward)
    for (a, _), loss in zip(used, losses, strict=True):
        yield a, loss.detach(), session.gradient(loss, names, create_graph)


def _sum_of_graphs(problem: Problem, graphs: list[Graph]) -> tuple[Tensor, Tensor]:
    loss = _weighted_loss(problem, [(a, value) for a, value, _ in graphs])
    total = _sum([a * flatten(g) for a, _, g in graphs]) if graphs else None
    return _sum_over_ranks(problem, loss, total)


def _first_order(
    session: Session, batch: Batch, plan: Plan, sub_batch: int, names: Sequence[str] | None = None
) -> tuple[Tensor, Tensor]:
    losses: list[tuple[float, Tensor]] = []
    total = None
    for a, value, piece in _graphs(session, batch, plan, sub_batch, False, names):
        losses.append((a, value))
        total = a * flatten(piece) if total is None else total.add_(flatten(piece), alpha=a)
    loss = _weighted_loss(session.problem, losses)
    return _sum_over_ranks(session.problem, loss, total, names)


def _weighted_loss(problem: Problem, losses: Sequence[tuple[float, Tensor]]) -> Tensor:
    """The sum of weighted losses, on the device."""
    if not losses:
        return torch.zeros((), dtype=sum_dtype(problem.unit_scales), device=problem.device)
    values = torch.stack([value for _, value in losses])
    weights = torch.tensor([a for a, _ in losses], dtype=torch.float64, device="cpu")
    return torch.dot(values, weights.to(values))


def _sum_over_ranks(
    problem: Problem, loss: Tensor, gradient: Tensor | None, names: Sequence[str] | None = None
) -> tuple[Tensor, Tensor]:
    """Loss and gradient summed over ranks; a rank without pieces passes ``None`` as gradient."""
    if gradient is None:
        names = names or problem.differentiated
        gradient = torch.zeros_like(flatten([problem.start[n] for n in names]))
    return problem.ranks.sum(loss.to(sum_dtype(loss))), problem.ranks.sum(gradient)


def _hessian_product(session: Session, batch: Batch, plan: Plan, v: Tensor) -> Tensor:
    parts = [
        session.second_backward(piece, unflatten(a * v, piece))
        for a, _, piece in _graphs(session, batch, plan, 0)
    ]
    return _sum_of_parts(session.problem, parts)


def _sum_of_parts(problem: Problem, parts: list[Tensor]) -> Tensor:
    """Derivatives by the scales, summed over pieces and ranks; ``parts`` may be empty."""
    own = _sum(parts) if parts else torch.zeros_like(problem.unit_scales, device=problem.device)
    return problem.ranks.sum(own)


def _full_product(session: Session, batch: Batch, plan: Plan, v: Tensor) -> Tensor:
    """``H v`` by all parameters, as a flat vector."""
    theta = session.point.tensors(session.problem.differentiated)
    total = torch.zeros_like(v)
    for a, _, piece in _graphs(session, batch, plan, 0):
        total.add_(flatten(_vector_jacobian(theta, piece, v)), alpha=a)
    return session.problem.ranks.sum(total)


def _vector_jacobian(
    theta: list[Tensor], outputs: tuple[Tensor, ...], v: Tensor, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """The derivative of ``<outputs, v>`` by ``theta``; zeros for tensors it does not depend on."""
    found = differentiate_graphs(outputs, theta, unflatten(v, outputs), create_graph)
    return zeros_if_missing(found, theta)


def _sum(vectors: list[Tensor]) -> Tensor:
    return vectors[0] if len(vectors) == 1 else torch.stack(vectors).sum(0)


# -- third order -----------------------------------------------------------------------------------


def _in_one_graph(
    session: Session, batch: Batch, plan: Plan, function: ScalarFunction
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    theta = session.point.tensors(session.problem.differentiated)
    graphs = list(_graphs(session, batch, plan, 0))
    loss = _weighted_loss(session.problem, [(a, value) for a, value, _ in graphs])
    g = tuple(
        torch.stack([a * piece[k] for a, _, piece in graphs]).sum(0) for k in range(len(theta))
    )
    half_square = torch.stack([part.square().sum() for part in g]).sum() / 2
    one = torch.ones_like(half_square).reshape(1)
    h = _vector_jacobian(theta, (half_square,), one, create_graph=True)
    flat = flatten(g)
    value, a, b = _derivatives(function, flat, flatten(h))
    vectors = [*unflatten(a, g), *unflatten(b, h)]
    return loss, flat, value, session.second_backward([*g, *h], vectors)


def _in_passes(
    session: Session, batch: Batch, plan: Plan, function: ScalarFunction
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    theta = session.point.tensors(session.problem.differentiated)
    loss, g = _first_order(session, batch, plan, 0)
    value, a, b = _derivatives(function, g, _full_product(session, batch, plan, g))
    a = a + _full_product(session, batch, plan, b)
    parts = []
    for weight, _, piece in _graphs(session, batch, plan, 0):
        h = _vector_jacobian(theta, piece, g, create_graph=True)
        vectors = [*unflatten(weight * a, piece), *unflatten(weight * b, h)]
        parts.append(session.second_backward([*piece, *h], vectors))
    return loss, g, value, _sum_of_parts(session.problem, parts)


def _derivatives(function: ScalarFunction, g: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The function's value and its derivatives by ``g`` and ``h``."""
    g, h = g.detach().requires_grad_(), h.detach().requires_grad_()
    value = function(g, h)
    by_g, by_h = torch.autograd.grad(value, [g, h])
    return value.detach(), by_g, by_h
