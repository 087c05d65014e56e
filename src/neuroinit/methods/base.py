"""The base classes: every initialization, and methods that learn scales."""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_count, check_number, check_patterns
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, make_plan
from neuroinit.methods.updates import Position, State
from neuroinit.model.fresh_values import Draw, new_seed
from neuroinit.model.problem import Problem
from neuroinit.model.selection import Selection

MEASURED = 8  # sub-batches in which gradients are compared before and after


@dataclass(frozen=True)
class Step:
    """The result of one step.

    Args:
        scales: After the step, before clamping.
        state: The method's state for the next step.
        constrained: Whether a bound was exceeded.
        loss: Before the step, as are ``cosine``, ``norm``, ``norm_max`` and ``norm_min``; ``nan``
            for what a method does not compute.
        value: The objective that the step minimizes.
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


@dataclass(frozen=True, kw_only=True)
class Initialization:
    """An initialization: fresh values for some tensors, and one scale for each.

    :func:`neuroinit.optimize` runs it.

    Args:
        include: Shell patterns of the names of the parameters that take part.
        exclude: Shell patterns of those that don't.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    needs_loss: ClassVar[bool] = False
    second_order: ClassVar[bool] = False  # whether gradients are differentiated
    engines: ClassVar[tuple[str, ...]] = ("keep", "stream")  # that can run it

    def __post_init__(self) -> None:
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)

    @property
    def steps(self) -> int:
        """Largest number of steps; an initialization that needs no data takes none."""
        return 0

    @property
    def tolerance(self) -> float:
        """Stop when no scale has changed by more than this fraction for five steps."""
        return 0.0

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Fresh values for parameters, by name."""
        return {}

    def selection(self) -> Selection:
        """Which parameters take part."""
        return Selection(self.include, self.exclude, draws=self.draws, needs_loss=self.needs_loss)

    def start(self, problem: Problem) -> tuple[Tensor, State]:
        """The scales before the first step, and the method's state."""
        return problem.unit_scales, {}

    def lowest(self, names: list[str]) -> Tensor:
        """The lower clamp of every scale."""
        return torch.zeros(len(names), dtype=torch.float64, device="cpu")

    @property
    def least_samples(self) -> int:
        """The fewest samples that a batch can be cut from."""
        return 1

    def for_samples(self, problem: Problem, size: int) -> Initialization:
        """The method for batches of this many samples."""
        return self

    def fits(self, problem: Problem, size: int) -> bool:
        """Whether a batch of this many samples is large enough."""
        return True

    def resolve(self, problem: Problem, batch: Batch) -> Initialization:
        """The method with every automatic setting replaced by its value, from a first batch."""
        return self

    def plan(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The pieces of a batch that a step computes."""
        return make_plan(problem, batch, 1, 0.0, "cover", "sub-batch", microbatch)

    def measured(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The sub-batches whose gradients are compared before and after."""
        least = 2 if problem.batch_norms else 1
        count = max(1, min(MEASURED, problem.layout.size(batch) // least))
        return make_plan(problem, batch, count, 0.0, "cover", "sub-batch", microbatch)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One step from the scales of the position.

        An initialization that only draws fresh values keeps its scales.
        """
        return Step(position.scales, position.state)

    def settings(self) -> dict[str, Any]:
        """All fields as plain values, for people and for JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"method": type(self).__name__, **{k: _plain(v) for k, v in values.items()}}


@dataclass(frozen=True, kw_only=True)
class Method(Initialization):
    """Learns one scale per tensor, batch by batch. A subclass defines ``step``, and may ``plan``.

    Args:
        steps: Largest number of steps.
        lr: Step size of the scales (the paper's tau).
        min_scale: Lower clamp of the scales (the paper's alpha).
        include: Shell patterns of the parameter names that get a scale.
        exclude: Shell patterns of those that don't.
        reinit_zeros: Standard deviation of a normal start for all-zero tensors, which otherwise
            are left alone.
        tolerance: Stop when no scale has changed by more than this fraction for five steps.
    """

    steps: int = 100
    lr: float = 0.05
    min_scale: float = 0.01
    reinit_zeros: float | None = None
    tolerance: float = 1e-5

    needs_loss: ClassVar[bool] = True
    second_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps, 1)
        check_number("lr", self.lr, 0.0)
        check_number("min_scale", self.min_scale, 0.0, 1.0, closed=True)
        check_number("tolerance", self.tolerance, 0.0, 1.0, closed=True)
        if self.reinit_zeros is not None:
            check_number("reinit_zeros", self.reinit_zeros, 0.0)

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """A normal start for all-zero tensors, if that is wanted."""
        if self.reinit_zeros is None:
            return {}
        return {
            name: Draw("normal", self.reinit_zeros, new_seed())
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and not parameter.any()
        }

    @abc.abstractmethod
    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One step from the point ``problem.at(position.scales)``."""

    def lowest(self, names: list[str]) -> Tensor:
        """The lower clamp of every scale."""
        return torch.full((len(names),), self.min_scale, dtype=torch.float64, device="cpu")


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": type(value).__name__, **fields}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__name__", repr(value))
