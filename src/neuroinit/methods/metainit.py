"""MetaInit: norms of the weights at which the gradient hardly changes along itself.

Dauphin and Schoenholz, *MetaInit: Initializing learning by learning to initialize*, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_callable, check_number
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.hessian import curvature_derivative
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Method, Step
from neuroinit.methods.updates import Position, State, Update, check_update
from neuroinit.model.finite import check_derivative, check_norm
from neuroinit.model.problem import Problem
from neuroinit.model.selection import LooksAt, Selection


def matrices(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Tensors of two dimensions or more: what MetaInit's paper scales."""
    return tensor.dim() >= 2


@dataclass(frozen=True, kw_only=True)
class MetaInit(Method):
    """MetaInit: descend the gradient quotient, ``mean |(g - Hg) / (g + eps sign(g)) - 1|``.

    The mean is over all trainable entries, and ``sign(0) = 1``. It also works on random inputs and
    labels, see :func:`neuroinit.random_batches`.

    Args:
        lr: Step of a tensor's norm; with an ``update``, of its scale.
        momentum: Of the sign-momentum steps.
        eps: Keeps the quotient finite.
        update: How a gradient moves the scales; ``None`` for the paper's steps of the norms: the
            sign of the derivative, with momentum.
        scales_of: ``scales_of(module, key, tensor)``: which parameters get a scale; ``None`` for
            all.

    Example:
        >>> MetaInit(steps=50).lr
        0.1
    """

    steps: int = 500
    lr: float = 0.1
    momentum: float = 0.9
    eps: float = 1e-5
    update: Update | None = None
    scales_of: LooksAt | None = matrices

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("momentum", self.momentum, 0.0, 1.0, closed=True)
        check_number("eps", self.eps, 0.0)
        if self.update is not None:
            check_update(self.update)
        if self.scales_of is not None:
            check_callable("scales_of", self.scales_of)

    def selection(self) -> Selection:
        """Matrices, unless told otherwise."""
        return replace(super().selection(), scales_of=self.scales_of)

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """All ones, no velocity."""
        scales = problem.unit_scales
        if self.update is not None:
            return scales, self.update.init(scales)
        return scales, {"velocity": torch.zeros_like(scales)}

    def fits(self, problem: Problem, size: int) -> bool:
        """BatchNorm needs two samples."""
        return size >= (2 if problem.batch_norms else 1)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One step down the gradient quotient."""
        point = problem.at(position.scales)
        loss, g, value, derivative = curvature_derivative(
            point, batch, plan, self._quotient, engine
        )
        norm = float(torch.linalg.vector_norm(g, dtype=torch.float64))
        check_norm(norm)
        scales, state = self._moved(problem, check_derivative(derivative, problem.scaled), position)
        return Step(
            scales=scales,
            state=state,
            loss=loss,
            norm=norm,
            norm_max=norm,
            norm_min=norm,
            value=float(value),
        )

    def _quotient(self, g: Tensor, h: Tensor) -> Tensor:
        sign = torch.where(g >= 0, 1.0, -1.0).to(g)
        return ((g - h) / (g + self.eps * sign) - 1).abs().mean()

    def _moved(
        self, problem: Problem, gradient: Tensor, position: Position
    ) -> tuple[Tensor, State]:
        if self.update is not None:
            return self.update.step(position.scales, gradient, self.lr, False, position.state)
        velocity = self.momentum * position.state["velocity"] - self.lr * gradient.sign()
        lengths = torch.stack([problem.start[n].norm().cpu().double() for n in problem.scaled])
        return position.scales + velocity / lengths, {"velocity": velocity}
