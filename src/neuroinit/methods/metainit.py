"""MetaInit: weight norms at which the gradient changes little along its own direction.

Dauphin and Schoenholz, *MetaInit: Initializing learning by learning to initialize*, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Unpack

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_callable, check_choice, check_number
from neuroinit.common.tensors import sum_dtype, to_host
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.hessian import curvature_derivative
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Method, Step
from neuroinit.methods.fields import MetaInitFields
from neuroinit.methods.updates import Position, State, Update, check_update, lower_bounds
from neuroinit.model.borrowing import NORM_STATISTICS
from neuroinit.model.finite import check_derivative, check_losses, check_norm
from neuroinit.model.parameters.selection import ParameterFilter, Selection
from neuroinit.model.problem import Problem


def matrices(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Tensors of two dimensions or more: those that MetaInit's paper scales."""
    return tensor.dim() >= 2


@dataclass(frozen=True, kw_only=True)
class MetaInit(Method):
    """MetaInit: minimize the gradient quotient by steps of the weight norms.

    With ``g`` the gradient, ``H`` the Hessian, and ``sign(0) = 1``, the gradient quotient is::

        Q = mean |(g - H g) / (g + eps sign(g)) - 1|,

    the mean over all entries of all trainable tensors. A step moves the norm of every scaled
    tensor, ``n_k = |w_k| ||W_k||``, by the sign of its derivative, with momentum::

        v_k <- momentum v_k - lr sign(dQ / dn_k),        n_k <- n_k + v_k.

    It also works on random inputs and labels, see :func:`neuroinit.random_batches`.
    ``docs/how-it-works/deviations.md`` lists how the defaults differ from the paper's listing;
    :meth:`reference` is the same as the listing.

    Args:
        steps: Largest number of steps.
        lr: Step size of a norm; with an ``update``, of a scale.
        momentum: Momentum of the steps.
        eps: Added to the denominators, so that they are not zero.
        update: An update of the scales, such as ``TwoMomentAdam()``, in place of the steps above.
        scales_of: ``scales_of(module, key, tensor)``: which parameters get a scale; ``None`` for
            all. By default tensors of two dimensions or more.
        batch_stats: BatchNorm uses the statistics of the ``"batch"``, or its ``"running"``
            statistics as in eval mode.
        sign_flips: Let a norm become negative, which changes the sign of the tensor, instead of
            keeping scales above ``min_scale``.
        min_scale, include, exclude, reinit_zeros, tolerance: See :class:`Method`.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.

    Example:
        >>> MetaInit(steps=50).lr
        0.1
    """

    steps: int = 500
    lr: float = 0.1
    momentum: float = 0.9
    eps: float = 1e-5
    update: Update | None = None
    scales_of: ParameterFilter | None = matrices
    batch_stats: str = "batch"
    sign_flips: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("momentum", self.momentum, 0.0, 1.0, closed=True)
        check_number("eps", self.eps, 0.0)
        if self.update is not None:
            check_update(self.update)
        if self.scales_of is not None:
            check_callable("scales_of", self.scales_of)
        check_choice("batch_stats", self.batch_stats, NORM_STATISTICS)

    @classmethod
    def reference(cls, **changes: Unpack[MetaInitFields]) -> MetaInit:
        """The listing in the paper's appendix.

        It differs from the defaults in two ways: the model is in eval mode, where BatchNorm uses
        its running statistics, and a norm may become negative. Also, it never stops early.

        Args:
            **changes: Fields that differ from it.

        Example:
            >>> MetaInit.reference(steps=50).batch_stats
            'running'
        """
        fields: MetaInitFields = {**_REFERENCE, **changes}
        return cls(**fields)

    def selection(self) -> Selection:
        """Which parameters get a scale."""
        return replace(super().selection(), scales_of=self.scales_of)

    def lowest(self, names: list[str]) -> Tensor:
        """The lower bound of every scale; none if signs may change."""
        return lower_bounds(names, float("-inf") if self.sign_flips else self.min_scale, None)

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """All scales one, and zero velocities or the state of the update."""
        scales = problem.unit_scales
        if self.update is not None:
            return scales, self.update.init(scales)
        return scales, {"velocity": torch.zeros_like(scales)}

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One step down the gradient quotient."""
        point = problem.with_norm_statistics(self.batch_stats).at(position.scales)
        loss, g, value, derivative = curvature_derivative(
            point, batch, plan, self._quotient, engine
        )
        length = torch.linalg.vector_norm(g, dtype=sum_dtype(g))
        lengths = [problem.start[n].norm() for n in problem.scaled]
        loss, length, value, derivative, *lengths = to_host(
            loss, length, value, derivative, *lengths
        )
        norm = float(length)
        check_losses(loss[None])
        check_norm(norm)
        check_derivative(derivative, problem.scaled)
        scales, state = self._moved(derivative, position, torch.stack(lengths))
        return Step(
            scales=scales,
            state=state,
            loss=float(loss),
            norm=norm,
            norm_max=norm,
            norm_min=norm,
            value=float(value),
        )

    def _quotient(self, g: Tensor, h: Tensor) -> Tensor:
        """``Q`` as a function of ``g`` and ``h = H g``."""
        sign = torch.where(g >= 0, 1.0, -1.0).to(g)
        return ((g - h) / (g + self.eps * sign) - 1).abs().mean()

    def _moved(
        self, derivative: Tensor, position: Position, lengths: Tensor
    ) -> tuple[Tensor, State]:
        """The scales after a step of the norms, ``dQ / dn_k = sign(w_k) dQ / dw_k / ||W_k||``.

        ``lengths`` are the norms ``||W_k||``.
        """
        scales, state = position.scales, position.state
        if self.update is not None:
            return self.update.step(scales, derivative, self.lr, False, state)
        velocity = self.momentum * state["velocity"] - self.lr * scales.sign() * derivative.sign()
        return scales + scales.sign() * velocity / lengths, {"velocity": velocity}


_REFERENCE: MetaInitFields = {"batch_stats": "running", "sign_flips": True, "tolerance": 0.0}
