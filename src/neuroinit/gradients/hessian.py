"""The gradient of one sub-batch, and what comes after it: Hessian products, also by stages.

Sub-batch ``row`` of a plan is ``g = sum_s a_s g_s`` over its pieces, and so is everything that is
linear in the loss: ``H v = sum_s a_s H_s v``. No graph has to span two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.errors import NonFiniteError, ZeroGradientError, named_operator
from neuroinit.common.tensors import filled, flatten, unflatten
from neuroinit.gradients.backward import gradient_of, second_backward
from neuroinit.gradients.plan import Plan, part
from neuroinit.kernels.function_mode import differentiate
from neuroinit.model.problem import Problem

Elementwise = Callable[[Tensor, Tensor], Tensor]


def gradient_and_product(
    problem: Problem,
    batch: Any,
    plan: Plan,
    direction: Callable[[Tensor], Tensor | None],
    engine: str,
    row: int = 0,
) -> tuple[float, Tensor, Tensor | None]:
    """The loss and gradient ``g`` of a sub-batch, and ``H v`` for ``v = direction(g)``.

    Args:
        problem: Where the scales were set by ``problem.place``.
        batch: A prepared batch.
        plan: Its pieces.
        direction: Of the product, from the gradient by all parameters as a flat vector; ``None``
            for no product.
        engine: ``"keep"`` goes on from the graphs of the first pass, ``"stream"`` computes them
            again, one at a time.
        row: Which sub-batch.

    Returns:
        Loss, ``g``, and ``<W_k, [H v]_k>`` for every scale.
    """
    with problem.session(second_order=True, marked=True), named_operator():
        if engine == "keep":
            graphs = list(_graphs(problem, batch, plan, row))
            loss, gradient = _over_ranks(
                problem,
                sum(a * float(value) for a, value, _ in graphs),
                _sum([a * flatten(g) for a, _, g in graphs]) if graphs else None,
            )
            v = direction(gradient)
            if v is None:
                return loss, gradient, None
            pieces = [g for _, _, g in graphs]
            products = second_backward(problem, pieces, [a * v for a, _, _ in graphs])
            return loss, gradient, problem.ranks.sum(products)
        loss, gradient = _first_order(problem, batch, plan, row)
        v = direction(gradient)
        if v is None:
            return loss, gradient, None
        return loss, gradient, _hessian_product(problem, batch, plan, row, v)


def gradient(problem: Problem, batch: Any, plan: Plan, row: int = 0) -> tuple[float, Tensor]:
    """The loss of a sub-batch and its gradient by all parameters, as a flat vector."""
    with problem.session():
        return _first_order(problem, batch, plan, row)


def curvature_derivative(
    problem: Problem, batch: Any, plan: Plan, function: Elementwise, engine: str
) -> tuple[float, Tensor, Tensor, Tensor]:
    """A function of the gradient ``g`` and of ``H g``, and its derivative by the parameters.

    With ``a`` and ``b`` the function's derivatives by ``g`` and ``h = H g``, the derivative is

        H a + H (H b) + d<b, H c>/dtheta   at a constant c = g:

    third order. ``"keep"`` leaves all of it to one graph; ``"stream"`` takes four passes and holds
    the graph of one piece at a time, as do several ranks: no graph spans two of them.

    Args:
        problem: Where the scales were set by ``problem.place``.
        batch: A prepared batch.
        plan: The pieces of its one sub-batch.
        function: ``function(g, h)``, a scalar.
        engine: ``"keep"`` or ``"stream"``.

    Returns:
        Loss, ``g``, the function's value, and its derivative by every scale.
    """
    one_graph = engine == "keep" and problem.ranks.alone
    with problem.session(second_order=True), named_operator():
        return (_in_one_graph if one_graph else _in_passes)(problem, batch, plan, function)


def check_length(length: float) -> None:
    """Raise for the norm of a gradient that cannot be used."""
    if length == 0:
        raise ZeroGradientError(
            "The gradient of the batch is exactly zero: the loss does not feel the parameters. "
            "Look for dead activations, a saturated output or all-zero tensors."
        )
    if not length < float("inf"):
        raise NonFiniteError(
            "The gradient of the batch is not finite. The start is too large: shrink it first, or "
            "compute in a wider dtype with `model.double()`."
        )


# -- pieces ----------------------------------------------------------------------------------------


def _used(problem: Problem, plan: Plan, row: int) -> tuple[list[float], list[tuple[int, int]]]:
    """The pieces of a sub-batch that this rank computes, and their weights."""
    weights = plan.weights[row].tolist()
    used = [(a, piece) for a, piece in zip(weights, plan.pieces, strict=True) if a]
    used = part(used, problem.ranks.rank, problem.ranks.world)
    return [a for a, _ in used], [piece for _, piece in used]


def _graphs(
    problem: Problem, batch: Any, plan: Plan, row: int, create_graph: bool = True
) -> Iterator[tuple[float, Tensor, tuple[Tensor, ...]]]:
    """``(a_s, L_s, g_s)`` of the pieces, one after the other."""
    weights, pieces = _used(problem, plan, row)
    losses = problem.losses(batch, pieces, plan.whole)
    for a, loss in zip(weights, losses, strict=True):
        yield a, loss.detach(), gradient_of(problem, loss, create_graph=create_graph)


def _first_order(problem: Problem, batch: Any, plan: Plan, row: int) -> tuple[float, Tensor]:
    loss, total = 0.0, None
    for a, value, piece in _graphs(problem, batch, plan, row, create_graph=False):
        loss += a * float(value)
        total = a * flatten(piece) if total is None else total.add_(flatten(piece), alpha=a)
    return _over_ranks(problem, loss, total)


def _over_ranks(problem: Problem, loss: float, gradient: Tensor | None) -> tuple[float, Tensor]:
    """The sums of all ranks' losses and gradients; ``None`` of a rank that has no piece."""
    if gradient is None:
        gradient = torch.zeros_like(flatten(problem.theta(problem.differentiated)))
    losses = torch.tensor(loss, dtype=torch.float64, device="cpu")
    return float(problem.ranks.sum(losses)), problem.ranks.sum(gradient)


def _hessian_product(problem: Problem, batch: Any, plan: Plan, row: int, v: Tensor) -> Tensor:
    graphs = _graphs(problem, batch, plan, row)
    parts = [second_backward(problem, [piece], [a * v]) for a, _, piece in graphs]
    return _over_pieces(problem, parts)


def _over_pieces(problem: Problem, parts: list[Tensor]) -> Tensor:
    """The sum of all ranks' derivatives by the scales; a rank may have no piece."""
    own = _sum(parts) if parts else torch.zeros_like(problem.unit_scales)
    return problem.ranks.sum(own)


def _full_product(problem: Problem, batch: Any, plan: Plan, v: Tensor) -> Tensor:
    """``H v`` by all parameters, as a flat vector."""
    theta = problem.theta(problem.differentiated)
    total = torch.zeros_like(v)
    for a, _, piece in _graphs(problem, batch, plan, 0):
        total.add_(flatten(_by(theta, piece, v)), alpha=a)
    return problem.ranks.sum(total)


def _by(
    theta: list[Tensor], outputs: tuple[Tensor, ...], v: Tensor, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """The derivative of ``<outputs, v>``; zeros where there is none."""
    live = [
        (o, part) for o, part in zip(outputs, unflatten(v, outputs), strict=True) if o.requires_grad
    ]
    found: tuple[Tensor | None, ...] = (None,) * len(theta)
    if live:
        found = differentiate(
            [o for o, _ in live], theta, [part for _, part in live], create_graph=create_graph
        )
    return filled(found, theta)


def _sum(vectors: list[Tensor]) -> Tensor:
    return vectors[0] if len(vectors) == 1 else torch.stack(vectors).sum(0)


# -- third order -----------------------------------------------------------------------------------


def _in_one_graph(
    problem: Problem, batch: Any, plan: Plan, function: Elementwise
) -> tuple[float, Tensor, Tensor, Tensor]:
    theta = problem.theta(problem.differentiated)
    graphs = list(_graphs(problem, batch, plan, 0))
    loss = sum(a * float(value) for a, value, _ in graphs)
    g = tuple(
        torch.stack([a * piece[k] for a, _, piece in graphs]).sum(0) for k in range(len(theta))
    )
    half_square = torch.stack([part.square().sum() for part in g]).sum() / 2
    h = _by(theta, (half_square,), torch.ones_like(half_square).reshape(1), create_graph=True)
    flat = flatten(g)
    value, a, b = _elementwise(function, flat, flatten(h))
    return loss, flat, value, second_backward(problem, [g, h], [a, b])


def _in_passes(
    problem: Problem, batch: Any, plan: Plan, function: Elementwise
) -> tuple[float, Tensor, Tensor, Tensor]:
    theta = problem.theta(problem.differentiated)
    loss, g = _first_order(problem, batch, plan, 0)
    value, a, b = _elementwise(function, g, _full_product(problem, batch, plan, g))
    a = a + _full_product(problem, batch, plan, b)
    parts = []
    for weight, _, piece in _graphs(problem, batch, plan, 0):
        h = _by(theta, piece, g, create_graph=True)
        parts.append(second_backward(problem, [piece, h], [weight * a, weight * b]))
    return loss, g, value, _over_pieces(problem, parts)


def _elementwise(function: Elementwise, g: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The function's value and its derivatives by ``g`` and ``h``."""
    g, h = g.detach().requires_grad_(), h.detach().requires_grad_()
    value = function(g, h)
    by_g, by_h = torch.autograd.grad(value, [g, h])
    return value.detach(), by_g, by_h
