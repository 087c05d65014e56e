"""GradInit's objective: the gradient norm, or the loss after one step of the optimizer.

With ``g`` the gradient of the sub-batch ``S`` at ``theta``, ``H`` its Hessian there, and ``g'`` the
gradient of ``S~`` at ``theta' = theta - eta A(g)``:

    d||g|| / dw_k                 = <W_k, [H v]_k>,    v = g / ||g||  (SGD)  or  sign(g)  (Adam)
    d(L(S~; theta') / eta) / dw_k = <W_k, g'_k> / eta - <W_k, [H (dA/dg)^T g']_k>

The last term is only there if ``A(g)`` is differentiated as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.tensors import dot, flatten, sum_dtype, to_host, unflatten
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.hessian import gradient, gradient_and_product
from neuroinit.gradients.plan import Plan
from neuroinit.model.finite import check_derivative, check_losses, check_norm
from neuroinit.model.point import Point


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


class TrialStep:
    """One step of the optimizer from a point, taken only to evaluate the loss after it.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its two sub-batches ``S`` and ``S~``.
        gamma: Bound of the gradient norm.
        eta: Length of the step.
        adam: Use ``A(g) = sign(g)`` and the L1 norm; else the L2 norm, and ``A(g)`` of SGD.
        normalize: For SGD, ``A(g) = g / ||g||``; if false, ``A(g) = g``.
        through_update: Differentiate ``A(g)`` as well.
    """

    def __init__(
        self,
        point: Point,
        batch: Batch,
        plan: Plan,
        *,
        gamma: float,
        eta: float,
        adam: bool,
        normalize: bool,
        through_update: bool,
    ) -> None:
        self.point, self.problem, self.batch, self.plan = point, point.problem, batch, plan
        self.gamma, self.eta, self.adam = gamma, eta, adam
        self.normalize, self.through_update = normalize, through_update
        self.constrained: bool  # these four are set by `_direction`
        self.loss: float
        self.norm: float
        self.value: float
        self.after: dict[str, Tensor] = {}  # g' by name

    def objective(self, engine: Engine) -> Objective:
        """Evaluate the objective and its derivative by the scales.

        Raises:
            GradientError: If a gradient is zero or not finite.
        """
        product = gradient_and_product(self.point, self.batch, self.plan, self._direction, engine)
        zeros = torch.zeros_like(self.problem.unit_scales)
        if self.constrained:
            (found,) = (zeros,) if product is None else to_host(product)
        else:
            found = self._loss_by_scales(product)
        check_derivative(found, self.problem.scaled)
        return Objective(self.constrained, self.loss, self.norm, self.value, found)

    def _direction(self, loss: Tensor, g: Tensor) -> Tensor | None:
        """The vector that ``H`` is multiplied with; ``None`` if no product is needed."""
        norm = g.abs().sum(dtype=sum_dtype(g)) if self.adam else dot(g, g).sqrt()
        loss, norm = to_host(loss, norm)
        check_losses(loss[None])
        self.loss, self.norm = float(loss), float(norm)
        check_norm(self.norm)
        self.constrained = self.norm > self.gamma
        if self.constrained:
            self.value = self.norm
            return g.sign() if self.adam else g / self.norm
        self._take_step(g)
        return self._back(g) if self.through_update and not self.adam else None

    def _take_step(self, g: Tensor) -> None:
        """Evaluate the loss of ``S~`` and its gradient at ``theta - eta A(g)``.

        Only the parameters whose gradient is ``g`` move. The gradient is taken by these and by all
        that have a scale.
        """
        moving, scaled = self.problem.differentiated, self.problem.scaled
        factor = -self.eta / (self.norm if self.normalize else 1.0)
        step = -self.eta * g.sign() if self.adam else factor * g
        parts = unflatten(step, self.point.tensors(moving))
        point = self.point.moved(dict(zip(moving, parts, strict=True)))
        names = [*moving, *(n for n in scaled if n not in set(moving))]
        self.loss_after, found = gradient(point, self.batch, self.plan, names, sub_batch=1)
        self.after = dict(zip(names, unflatten(found, point.tensors(names)), strict=True))

    def _loss_by_scales(self, product: Tensor | None) -> Tensor:
        """``<W_k, g'_k> / eta`` for every scale, minus the product; sets ``value``."""
        start, names = self.problem.start, self.problem.scaled
        dots = [dot(start[n], self.after[n]) for n in names]
        loss, *found = to_host(self.loss_after, *dots, *([] if product is None else [product]))
        check_losses(loss[None])
        self.value = float(loss) / self.eta
        by_scale = torch.stack(found[: len(names)]) / self.eta
        return by_scale if product is None else by_scale - found[-1]

    def _back(self, g: Tensor) -> Tensor:
        """``(dA/dg)^T g'`` for SGD: ``(g' - u <u, g'>) / ||g||`` with ``u = A(g) = g / ||g||``."""
        after = flatten([self.after[n] for n in self.problem.differentiated])
        if not self.normalize:
            return after
        u = g / self.norm
        return (after - u * dot(u, after)) / self.norm
