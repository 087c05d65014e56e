"""GradInit: scales that make the first optimizer step reduce the loss most.

Zhu et al., *GradInit: Learning to Initialize Neural Networks for Stable and Efficient Training*,
NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_choice, check_number, check_overlap
from neuroinit.common.tensors import dot, sum_dtype, unflatten
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.hessian import gradient, gradient_and_product
from neuroinit.gradients.plan import Plan, make_plan
from neuroinit.methods.base import Method, Step
from neuroinit.methods.updates import Position, State, TwoMomentAdam, Update, check_update
from neuroinit.model.finite import check_derivative, check_norm
from neuroinit.model.optimizers import OptimizerLike, family_of
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

# lr and steps of the authors' CIFAR-10 runs; everything else is as the defaults
GRADINIT_PRESETS: dict[str, dict[str, Any]] = {
    "cifar10-resnet110": {"lr": 1e-3, "steps": 390},
    "cifar10-resnet110-nobn": {"lr": 5e-2, "steps": 390},
    "cifar10-densenet100": {"lr": 1e-2, "steps": 780},
    "cifar10-densenet100-nobn": {"lr": 5e-3, "steps": 780},
    "cifar10-wrn28-10": {"lr": 3e-3, "steps": 780},
}


@dataclass(frozen=True, kw_only=True)
class GradInit(Method):
    """GradInit, in the form of the authors' released code.

    A batch is cut into two overlapping parts ``S`` and ``S~``, by default two thirds of it each.
    Where the norm of the gradient ``g`` of ``S`` exceeds ``gamma``, the step goes down that norm;
    otherwise down ``L(S~; theta - eta A(g)) / eta``, the loss after one optimizer step.

    Args:
        gamma: Bound of the gradient's norm: its L2 norm for SGD, its L1 norm for Adam.
        eta: Length of the optimizer step that is tried.
        optimizer: What you will train with: an optimizer, a function of parameters that makes one,
            or just ``"sgd"`` or ``"adam"``. For SGD, ``A(g) = g / ||g||``, or ``g`` without
            ``normalize``; for Adam and other adaptive optimizers, ``A(g) = sign(g)``.
        normalize: Whether SGD's step is normalized.
        through_update: Differentiate ``A(g)`` as well, which depends on the scales; the released
            code takes it as a constant.
        overlap: Which share of its samples ``S~`` has from ``S``. At one half, a batch of 192 gives
            two of 128.
        update: How a gradient moves the scales.

    Example:
        >>> GradInit(steps=100, optimizer="adam", gamma=50.0).eta
        0.1
    """

    steps: int = 390
    lr: float = 0.01
    gamma: float = 1.0
    eta: float = 0.1
    optimizer: str | OptimizerLike = "sgd"
    normalize: bool = True
    through_update: bool = False
    overlap: float = 0.5
    update: Update = field(default_factory=TwoMomentAdam)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gamma", self.gamma, 0.0)
        check_number("eta", self.eta, 0.0)
        object.__setattr__(self, "optimizer", family_of(self.optimizer))
        check_overlap(self.overlap)
        check_update(self.update)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> GradInit:
        """The settings of one of the authors' CIFAR-10 runs.

        Args:
            name: See ``GRADINIT_PRESETS``.
            **changes: Fields that differ from it.

        Example:
            >>> GradInit.preset("cifar10-densenet100").steps
            780
        """
        check_choice("name", name, tuple(GRADINIT_PRESETS))
        return cls(**{**GRADINIT_PRESETS[name], **changes})

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """All ones."""
        return problem.unit_scales, self.update.init(problem.unit_scales)

    def plan(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """``S`` and ``S~``, or what they are made of."""
        return make_plan(
            problem, batch, 2, self.overlap, "cover", "sub-batch", microbatch, serial=True
        )

    def fits(self, problem: Problem, size: int) -> bool:
        """A batch needs a sample for ``S`` and one for ``S~``; BatchNorm two for each."""
        return size >= (4 if problem.batch_norms else 2)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """Down the norm above the bound, down the loss after an optimizer step below it."""
        point = problem.at(position.scales)
        tried = _Tried(self, point, batch, plan)
        loss, _, product = gradient_and_product(point, batch, plan, tried.direction, engine)
        derivative = tried.derivative(product)
        scales, state = self.update.step(
            position.scales, derivative, self.lr, tried.constrained, position.state
        )
        return Step(
            scales=scales,
            state=state,
            constrained=tried.constrained,
            loss=loss,
            norm=tried.norm,
            norm_max=tried.norm,
            norm_min=tried.norm,
            value=tried.value,
        )


class _Tried:
    """One step: the norm of ``S``, and the loss of ``S~`` after an optimizer step."""

    def __init__(self, method: GradInit, point: Point, batch: Batch, plan: Plan) -> None:
        self.method, self.point, self.batch, self.plan = method, point, batch, plan
        self.problem = point.problem
        self.constrained, self.norm, self.value = False, 0.0, 0.0
        self.after: Tensor | None = None

    def direction(self, g: Tensor) -> Tensor | None:
        """What to multiply the Hessian of ``S`` with; ``None`` if nothing."""
        self.norm = _length(self.method, g)
        check_norm(self.norm)
        self.constrained = self.norm > self.method.gamma
        if self.constrained:
            self.value = self.norm
            return g.sign() if self.method.optimizer == "adam" else g / self.norm
        names = self.problem.trainable
        parts = unflatten(self._update(g), self.point.tensors(names))
        after = self.point.moved({n: -p for n, p in zip(names, parts, strict=True)})
        loss, self.after = gradient(after, self.batch, self.plan, sub_batch=1)
        self.value = loss / self.method.eta
        return self._back(g, self.after) if self.method.through_update else None

    def derivative(self, product: Tensor | None) -> Tensor:
        """Of the norm, or of the loss after the optimizer step over ``eta``, by the scales."""
        found = torch.zeros_like(self.problem.unit_scales)
        if self.after is not None:
            found = self.problem.by_scales(self.after) / self.method.eta
        if product is not None:
            found = found + product if self.constrained else found - product
        return check_derivative(found, self.problem.scaled)

    def _update(self, g: Tensor) -> Tensor:
        """``eta A(g)``."""
        if self.method.optimizer == "adam":
            return self.method.eta * g.sign()
        return g * (self.method.eta / (self.norm if self.method.normalize else 1.0))

    def _back(self, g: Tensor, after: Tensor) -> Tensor | None:
        """``(dA/dg)^T after``; the sign has no derivative."""
        if self.method.optimizer == "adam":
            return None
        if not self.method.normalize:
            return after
        unit = g / self.norm
        return (after - unit * float(dot(unit, after))) / self.norm


def _length(method: GradInit, g: Tensor) -> float:
    if method.optimizer == "adam":
        return float(g.abs().sum(dtype=sum_dtype(g)))
    return float(dot(g, g).sqrt())
