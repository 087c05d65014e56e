"""Base classes: :class:`Initialization`, and :class:`Method` for those that learn scales."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_count, check_number, check_patterns
from neuroinit.common.process.random_state import new_seed
from neuroinit.common.sealed_json import JSON, described_fields
from neuroinit.distributed.dtensor import all_zero
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, make_plan
from neuroinit.methods.updates import Position, State, lower_bounds
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import Selection
from neuroinit.model.problem import Problem

MEASURED = 8  # sub-batches in the statistics before and after


@dataclass(frozen=True)
class Step:
    """The result of one step.

    All numbers but ``scales`` and ``state`` are those before the step. What a method does not
    compute is ``nan``.

    Args:
        scales: The new scales, not yet clamped; float64 on the CPU.
        state: The method's state for the next step.
        constrained: Whether the bound of the gradient norm was exceeded.
        loss: The mean loss.
        cosine: GradCosine of the sub-batches.
        norm: Mean of their gradient norms.
        norm_max: Largest of their gradient norms.
        norm_min: Smallest of their gradient norms.
        value: The objective that the step minimizes.
        done: Why further steps would change nothing; empty if they may.
    """

    scales: Tensor
    state: State
    constrained: bool = False
    loss: float = math.nan
    cosine: float = math.nan
    norm: float = math.nan
    norm_max: float = math.nan
    norm_min: float = math.nan
    value: float = math.nan
    done: str = ""


@dataclass(frozen=True, kw_only=True)
class Initialization:
    """Base class of all initializations: new values for some tensors, and one scale for each.

    :func:`neuroinit.optimize` runs it.

    Args:
        include: Shell patterns of the names of the parameters that take part.
        exclude: Shell patterns of those that do not, even if included.

    Raises:
        TypeError: If ``include`` or ``exclude`` is not a tuple of strings.

    Attributes:
        needs_loss: Whether a loss is required.
        engines: Names of the engines that can run it.

    Example:
        >>> import neuroinit as ni
        >>> isinstance(ni.NIO(), Initialization), isinstance(ni.Kaiming(), Initialization)
        (True, True)
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    needs_loss: ClassVar[bool] = False
    engines: ClassVar[tuple[str, ...]] = ("keep", "stream")

    def __post_init__(self) -> None:
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)

    @property
    def second_order(self) -> bool:
        """Whether gradients are differentiated."""
        return False

    @property
    def steps(self) -> int:
        """Largest number of steps; 0 for an initialization that needs no data."""
        return 0

    @property
    def tolerance(self) -> float:
        """Stop when no scale has changed by more than this fraction for five steps."""
        return 0.0

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Which parameters get new values, by name, and how these are drawn."""
        return {}

    def selection(self) -> Selection:
        """Which parameters take part."""
        return Selection(self.include, self.exclude, draws=self.draws, needs_loss=self.needs_loss)

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """The scales and the method's state before the first step."""
        return problem.unit_scales, {}

    def final_scales(self, scales: Tensor, state: State) -> Tensor:
        """The scales to apply after the last step; a search may return others than its last."""
        return scales

    def lowest(self, names: list[str]) -> Tensor:
        """The lower bound of every scale, in the order of the names."""
        return torch.zeros(len(names), dtype=torch.float64, device="cpu")

    @property
    def least_samples(self) -> int:
        """The fewest samples that a batch needs to be cut into sub-batches."""
        return 1

    def for_samples(self, problem: Problem, size: int) -> Initialization:
        """The method for batches of this many samples."""
        return self

    def fits(self, problem: Problem, size: int) -> bool:
        """Whether a batch of this many samples is large enough: two with BatchNorm."""
        return size >= (2 if problem.batch_norms else 1)

    def resolve(self, problem: Problem, batch: Batch) -> Initialization:
        """A copy with every automatic setting replaced by its value, found on the first batch."""
        return self

    def plan(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The sub-batches of a step and the pieces that they are computed from."""
        return make_plan(problem, batch, 1, 0.0, "cover", "sub-batch", microbatch)

    def measured(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The plan of the statistics before and after: up to 8 sub-batches."""
        least = 2 if problem.batch_norms else 1
        count = max(1, min(MEASURED, problem.layout.size(batch) // least))
        return make_plan(problem, batch, count, 0.0, "cover", "sub-batch", microbatch)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One step; an initialization that only draws new values keeps its scales.

        Args:
            problem: The model and its loss.
            batch: A prepared batch.
            plan: What ``plan`` returned for this batch.
            engine: How derivatives are computed.
            position: The scales and the state before the step.
        """
        return Step(position.scales, position.state)

    def settings(self) -> dict[str, JSON]:
        """The class name and all fields as plain values that JSON can hold."""
        return {"method": type(self).__name__, **described_fields(self)}


@dataclass(frozen=True, kw_only=True)
class Method(Initialization):
    """Base class of methods that learn one scale for each tensor, one batch at a time.

    A subclass defines :meth:`step`. If a step needs more than one sub-batch, it also defines
    ``plan``.

    Args:
        steps: Largest number of steps.
        lr: Step size of the scales (tau in NIO's paper).
        min_scale: Lower bound of the scales (alpha in NIO's paper).
        include: Shell patterns of the parameter names that get a scale.
        exclude: Shell patterns of those that do not, even if included.
        reinit_zeros: Standard deviation of normal values for all-zero tensors; ``None`` keeps them
            zero.
        tolerance: Stop when no scale has changed by more than this fraction for five steps.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.

    Example:
        Kaiming draws values without data, and NIO learns scales:

        >>> import neuroinit as ni
        >>> isinstance(ni.NIO(), Method), isinstance(ni.Kaiming(), Method)
        (True, False)
    """

    steps: int = 100
    lr: float = 0.05
    min_scale: float = 0.01
    reinit_zeros: float | None = None
    tolerance: float = 1e-5

    needs_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps, 1)
        check_number("lr", self.lr, 0.0)
        check_number("min_scale", self.min_scale, 0.0, 1.0, closed=True)
        check_number("tolerance", self.tolerance, 0.0, 1.0, closed=True)
        if self.reinit_zeros is not None:
            check_number("reinit_zeros", self.reinit_zeros, 0.0)

    @property
    def second_order(self) -> bool:
        """Gradients are differentiated, unless a subclass says otherwise."""
        return True

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Normal values for all-zero tensors if ``reinit_zeros`` is set."""
        if self.reinit_zeros is None:
            return {}
        return {
            name: Draw("normal", self.reinit_zeros, new_seed())
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and all_zero(parameter)
        }

    @abc.abstractmethod
    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One step from the point ``problem.at(position.scales)``."""

    def lowest(self, names: list[str]) -> Tensor:
        """The lower bound of every scale: ``min_scale``."""
        return lower_bounds(names, self.min_scale, None)
