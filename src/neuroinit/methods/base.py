"""What every method has in common: steps, scales and which parameters get one."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroinit.checks import check_count, check_number, check_patterns
from neuroinit.plan import Plan
from neuroinit.problem import Problem, Selection
from neuroinit.scales import Position, State


@dataclass(frozen=True)
class Step:
    """What a method made of one batch.

    Args:
        scales: After the step, not clamped yet.
        state: What the method remembers for the next step.
        constrained: Whether a bound was exceeded.
        loss: Before the step, as are ``cosine``, ``norm``, ``norm_max`` and ``norm_min``.
    """

    scales: Tensor
    state: State
    constrained: bool
    loss: float
    cosine: float
    norm: float
    norm_max: float
    norm_min: float


@dataclass(frozen=True, kw_only=True)
class Method(abc.ABC):
    """Learns one scale a tensor, batch by batch; the loop is :func:`neuroinit.optimize`.

    Args:
        steps: Largest number of steps.
        lr: Step size of the scales (the paper's tau).
        min_scale: Lower clamp of the scales (the paper's alpha).
        include: Shell patterns of the parameter names that get a scale.
        exclude: Shell patterns of those that don't.
        reinit_zeros: Standard deviation of a normal start for all-zero tensors, which otherwise
            are left alone.
        tolerance: Stop when no scale has moved by more than this share for five steps.
    """

    steps: int = 100
    lr: float = 0.05
    min_scale: float = 0.01
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    reinit_zeros: float | None = None
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        check_count("steps", self.steps, 1)
        check_number("lr", self.lr, 0.0)
        check_number("min_scale", self.min_scale, 0.0, 1.0, closed=True)
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)
        check_number("tolerance", self.tolerance, 0.0, 1.0, closed=True)
        if self.reinit_zeros is not None:
            check_number("reinit_zeros", self.reinit_zeros, 0.0)

    @abc.abstractmethod
    def start(self, names: list[str]) -> tuple[Tensor, State]:
        """The scales before the first step, and what the method remembers."""

    @abc.abstractmethod
    def plan(self, problem: Problem, batch: Any, microbatch: int | None) -> Plan:
        """The pieces of a batch that a step computes."""

    @abc.abstractmethod
    def step(
        self, problem: Problem, batch: Any, plan: Plan, engine: str, position: Position
    ) -> Step:
        """One step from the scales of the position."""

    def fits(self, problem: Problem, size: int) -> bool:
        """Whether a batch of this many samples is large enough."""
        return True

    def resolve(self, problem: Problem, batch: Any) -> Method:
        """The method with every automatic setting replaced by its value, from a first batch."""
        return self

    def selection(self) -> Selection:
        """Which parameters take part."""
        return Selection(self.include, self.exclude, reinit_zeros=self.reinit_zeros)

    def lowest(self, names: list[str]) -> Tensor:
        """The lower clamp of every scale."""
        return torch.full((len(names),), self.min_scale, dtype=torch.float64, device="cpu")

    def settings(self) -> dict[str, Any]:
        """All fields as plain values, for people and for JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"method": type(self).__name__, **{k: _plain(v) for k, v in values.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": type(value).__name__, **fields}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__name__", repr(value))
