"""GradInit's objective: the gradient norm, or the loss after one step of the optimizer.

With ``g`` the gradient of the sub-batch ``S`` at ``theta``, ``H`` its Hessian there, and ``g'`` the
gradient of ``S~`` at ``theta' = theta - eta A(g)``:

    d||g|| / dw_k                 = <W_k, [H v]_k>,    v = g / ||g||  (SGD)  or  sign(g)  (Adam)
    d(L(S~; theta') / eta) / dw_k = <W_k, g'_k> / eta - <W_k, [H (dA/dg)^T g']_k>

The last term is only there if ``A(g)`` is differentiated as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.tensors import dot, flatten, sum_dtype, to_host, unflatten
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.hessian import gradient, gradient_and_product
from neuroinit.gradients.plan import Plan
from neuroinit.model.finite import check_derivative, check_losses, check_norm
from neuroinit.model.point import Point

if TYPE_CHECKING:
    from neuroinit.methods.gradinit import GradInit


@dataclass(frozen=True)
class Objective:
    """GradInit's objective and its derivative at a point.

    Args:
        constrained: Whether the gradient norm exceeds its bound.
        loss: The loss of ``S``.
        norm: The norm of the gradient of ``S``.
        value: The objective.
        derivative: The derivative of the objective by every scale, float64 on the CPU.
    """

    constrained: bool
    loss: float
    norm: float
    value: float
    derivative: Tensor


def trial_objective(
    method: GradInit, point: Point, batch: Batch, plan: Plan, engine: Engine
) -> Objective:
    """Evaluate the objective and its derivative by the scales.

    Args:
        method: Its bound, and the step of the optimizer that is tried.
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its two sub-batches ``S`` and ``S~``.
        engine: Whether graphs are kept.

    Raises:
        GradientError: If a gradient is zero or not finite.
    """
    adam = method.family == "adam"
    with gradient_and_product(point, batch, plan, engine) as (loss, g, product):
        norm = g.abs().sum(dtype=sum_dtype(g)) if adam else dot(g, g).sqrt()
        loss, norm = to_host(loss, norm)
        check_losses(loss[None])
        value = length = float(norm)
        check_norm(length)
        if length > method.gamma:
            (by_scale,) = to_host(product(g.sign() if adam else g / length))
        else:
            value, by_scale = _below_bound(method, point, batch, plan, g, length, product)
    check_derivative(by_scale, point.problem.scaled)
    return Objective(length > method.gamma, float(loss), length, value, by_scale)


def _below_bound(
    method: GradInit,
    point: Point,
    batch: Batch,
    plan: Plan,
    g: Tensor,
    norm: float,
    product: Callable[[Tensor], Tensor],
) -> tuple[float, Tensor]:
    """``L(S~; theta') / eta``, and its derivative by every scale."""
    problem = point.problem
    loss, after = _after_step(method, point, batch, plan, g, norm)
    products = []
    if method.through_update and method.family == "sgd":
        own = flatten([after[n] for n in problem.differentiated])
        products = [product(_back(method, g, norm, own))]
    dots = [dot(problem.start[n], after[n]) for n in problem.scaled]
    loss, *found = to_host(loss, *dots, *products)
    check_losses(loss[None])
    by_scale = torch.stack(found[: len(dots)]) / method.eta
    return float(loss) / method.eta, by_scale - found[-1] if products else by_scale


def _after_step(
    method: GradInit, point: Point, batch: Batch, plan: Plan, g: Tensor, norm: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of ``S~`` at ``theta - eta A(g)``, and its gradient by name.

    Only the parameters whose gradient is ``g`` move. The gradient is taken by these and by all
    that have a scale.
    """
    moving, scaled = point.problem.differentiated, point.problem.scaled
    factor = -method.eta / (norm if method.normalize else 1.0)
    step = -method.eta * g.sign() if method.family == "adam" else factor * g
    parts = unflatten(step, point.tensors(moving))
    moved = point.moved(dict(zip(moving, parts, strict=True)))
    names = [*moving, *(n for n in scaled if n not in set(moving))]
    loss, found = gradient(moved, batch, plan, names, sub_batch=1)
    return loss, dict(zip(names, unflatten(found, moved.tensors(names)), strict=True))


def _back(method: GradInit, g: Tensor, norm: float, after: Tensor) -> Tensor:
    """``(dA/dg)^T g'`` for SGD: ``(g' - u <u, g'>) / ||g||`` with ``u = A(g) = g / ||g||``."""
    if not method.normalize:
        return after
    u = g / norm
    return (after - u * dot(u, after)) / norm
