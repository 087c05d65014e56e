"""Base classes of rules, which move the scales in a step of NIO; and the paper's rule."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_callable
from neuroinit.common.errors import NonFiniteError
from neuroinit.gradients.agreement import differentiated
from neuroinit.gradients.engines import Derivative, Engine
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Step
from neuroinit.methods.nio.objectives import Measure, cosine_and_norm, largest_norm
from neuroinit.methods.updates import Position, State, TwoMomentAdam, Update, check_update
from neuroinit.model.problem import Problem

if TYPE_CHECKING:
    from neuroinit.methods.nio.method import NIO

RETREATS = 12  # most times that scales are shrunk because a loss or gradient is not finite


class Rule(abc.ABC):
    """How a step of :class:`NIO` moves the scales. Subclasses are frozen dataclasses.

    Attributes:
        second_order: Whether a step differentiates gradients.
        bounds_norm: Whether ``gamma`` is a bound of the gradient norm. If not, ``gamma`` is the
            unit of the loss: that of a network whose weights are near zero.
    """

    second_order: ClassVar[bool] = True
    bounds_norm: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, scales: Tensor) -> State:
        """The state before the first step: a dict of tensors. All scales are 1 there."""

    @abc.abstractmethod
    def step(
        self,
        nio: NIO,
        problem: Problem,
        batch: Batch,
        plan: Plan,
        engine: Engine,
        position: Position,
    ) -> Step:
        """One step.

        Args:
            nio: The method, for its settings such as ``lr`` and ``gamma``, which is a number here.
            problem: The model and its loss.
            batch: A prepared batch.
            plan: Its sub-batches.
            engine: How derivatives are computed.
            position: The scales and the state before the step.
        """

    def final_scales(self, scales: Tensor, state: State) -> Tensor:
        """The scales to apply after the last step."""
        return scales


class DerivativeRule(Rule):
    """A rule that moves the scales by the derivative of one function of the gradients."""

    gram: bool  # whether `moments.gram` is read

    @abc.abstractmethod
    def descended(self, position: Position, moments: Moments, gamma: float) -> Tensor:
        """The scalar whose derivative by the scales is taken."""

    @abc.abstractmethod
    def constrained(self, moments: Moments, gamma: float) -> bool:
        """Whether the bound is exceeded."""

    @abc.abstractmethod
    def move(
        self, position: Position, gradient: Tensor, moments: Moments, gamma: float, lr: float
    ) -> tuple[Tensor, State]:
        """The scales after the step, and the new state."""

    def retreat(self, position: Position, lr: float) -> Tensor | None:
        """Smaller scales to try if a loss or gradient is not finite; ``None`` to give up."""
        return None

    def step(
        self,
        nio: NIO,
        problem: Problem,
        batch: Batch,
        plan: Plan,
        engine: Engine,
        position: Position,
    ) -> Step:
        """One pass of Alg. 3's loop."""
        gamma = float(nio.gamma)
        position, found = self._derivative(nio, problem, batch, plan, engine, position)
        moments, position = found.moments, dataclasses.replace(position, loss=found.loss)
        scales, state = self.move(position, found.gradient, moments, gamma, nio.lr)
        constrained = self.constrained(moments, gamma)
        return measured_step(scales, state, constrained, found.loss, moments, found.value)

    def _derivative(
        self,
        nio: NIO,
        problem: Problem,
        batch: Batch,
        plan: Plan,
        engine: Engine,
        position: Position,
    ) -> tuple[Position, Derivative]:
        """The derivative; from smaller scales if it is not finite and the rule can retreat."""
        lowest = nio.lowest(problem.scaled)

        def descended(moments: Moments) -> Tensor:
            return self.descended(position, moments, float(nio.gamma))

        for attempt in range(RETREATS):
            point = problem.at(position.scales)
            try:
                return position, differentiated(engine, point, batch, plan, descended, self.gram)
            except NonFiniteError as failure:
                if attempt == 0:
                    first_failure = failure
                smaller = self.retreat(position, nio.lr)
                if smaller is None:
                    break
                position = dataclasses.replace(position, scales=torch.maximum(smaller, lowest))
        raise first_failure


def measured_step(
    scales: Tensor, state: State, constrained: bool, loss: float, moments: Moments, value: float
) -> Step:
    """A step that records the loss and the sub-batch gradients before it."""
    return Step(
        scales=scales,
        state=state,
        constrained=constrained,
        loss=loss,
        cosine=float(moments.cosine),
        norm=float(moments.norms.mean()),
        norm_max=float(moments.norms.max()),
        norm_min=float(moments.norms.min()),
        value=value,
    )


@dataclass(frozen=True)
class BoundedAscent(DerivativeRule):
    """Alg. 3: ascend an objective; while a bound is exceeded, descend the mean norm instead.

    Args:
        objective: What is maximized.
        bounded: What ``gamma`` bounds.
        update: How a gradient moves the scales.
        gram: The objective reads ``moments.gram``.

    Example:
        >>> from neuroinit import NIO
        >>> from neuroinit.methods.rules import cosine
        >>> NIO(rule=BoundedAscent(cosine), gamma=3.0, lr=0.05).rule.objective.__name__
        'cosine'
    """

    objective: Measure = cosine_and_norm
    bounded: Measure = largest_norm
    update: Update = field(default_factory=TwoMomentAdam)
    gram: bool = False

    def __post_init__(self) -> None:
        check_callable("objective", self.objective)
        check_callable("bounded", self.bounded)
        check_update(self.update)

    def init(self, scales: Tensor) -> State:
        """The update's state."""
        return self.update.init(scales)

    def descended(self, position: Position, moments: Moments, gamma: float) -> Tensor:
        """The norm above the bound, minus the objective below it."""
        if self.constrained(moments, gamma):
            return moments.norm
        return -self.objective(moments)

    def constrained(self, moments: Moments, gamma: float) -> bool:
        """Whether the bound is exceeded."""
        return bool(self.bounded(moments) > gamma)

    def move(
        self, position: Position, gradient: Tensor, moments: Moments, gamma: float, lr: float
    ) -> tuple[Tensor, State]:
        """One step of the update."""
        constrained = self.constrained(moments, gamma)
        return self.update.step(position.scales, gradient, lr, constrained, position.state)
