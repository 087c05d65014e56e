"""Update rules of the scales, and their clamp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from neuroinit.common.checks import check_instance, check_number

State = dict[str, Tensor]


@dataclass(frozen=True)
class Position:
    """The state of a run before a step.

    Args:
        scales: One for every scaled tensor, float64 on the CPU.
        state: The method's own state.
        progress: Steps done, as a fraction of all.
        loss: At these scales, if known.
    """

    scales: Tensor
    state: State
    progress: float = 0.0
    loss: float = math.nan


@runtime_checkable
class Update(Protocol):
    """A rule that moves the scales against a gradient; its state is a dict of tensors."""

    def init(self, scales: Tensor) -> State:
        """The state before the first step."""
        ...

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """The scales after a step against ``gradient``, and the new state."""
        ...


def check_update(update: Any) -> None:
    """Raise a TypeError for anything that is not an update rule."""
    check_instance("update", update, Update, "an update rule such as `TwoMomentAdam()`")


@dataclass(frozen=True)
class Plain:
    """``w <- w - lr * gradient``, the step of the paper's Alg. 3."""

    def init(self, scales: Tensor) -> State:
        """No state."""
        return {}

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """One plain step."""
        return scales - lr * gradient, state


@dataclass(frozen=True)
class TwoMomentAdam:
    """Adam with a first moment for objective steps and another for constraint steps.

    Each first moment has its own step count for the bias correction; the second moment is shared
    and corrected by the total count. This is the rule of GradInit's and NIO's released code.

    Args:
        clip: The gradient of every scale is clipped to ``[-clip, clip]``.
        log: Update ``log w`` instead of ``w``: a step multiplies a scale, so it stays positive.
    """

    clip: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    log: bool = False

    def __post_init__(self) -> None:
        check_number("clip", self.clip, 0.0)
        check_number("beta1", self.beta1, 0.0, 1.0, closed=True)
        check_number("beta2", self.beta2, 0.0, 1.0, closed=True)
        check_number("eps", self.eps, 0.0)

    def init(self, scales: Tensor) -> State:
        """Zero moments and counts; row 0 is for objective steps, row 1 for constraint steps."""
        zeros = torch.zeros_like(scales)
        return {
            "first": torch.stack([zeros, zeros]),
            "second": zeros,
            "counts": scales.new_zeros(2),
        }

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """One Adam step with the moments of its kind."""
        kind = int(constrained)
        gradient = (gradient * scales if self.log else gradient).clamp(-self.clip, self.clip)
        first, counts = state["first"].clone(), state["counts"].clone()
        counts[kind] += 1
        first[kind] = self.beta1 * first[kind] + (1 - self.beta1) * gradient
        second = self.beta2 * state["second"] + (1 - self.beta2) * gradient**2
        mean = first[kind] / (1 - self.beta1 ** float(counts[kind]))
        spread = (second / (1 - self.beta2 ** float(counts.sum()))).sqrt()
        move = lr * mean / (spread + self.eps)
        moved = scales * torch.exp(-move) if self.log else scales - move
        return moved, {"first": first, "second": second, "counts": counts}


@dataclass(frozen=True)
class OneScale:
    """One scale for the whole network: all scales take the step of their common factor.

    Args:
        update: How the derivative by the common factor moves it.
    """

    update: Update

    def __post_init__(self) -> None:
        check_update(self.update)

    def init(self, scales: Tensor) -> State:
        """The update's state."""
        return self.update.init(scales)

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """The same step for every scale: the derivative by a common factor is the sum."""
        together = gradient.sum().expand_as(gradient)
        return self.update.step(scales, together, lr, constrained, state)


def clamped(moved: Tensor, scales: Tensor, lowest: Tensor) -> Tensor:
    """Clamp to the lower bounds; a scale that has reached zero stays zero."""
    return torch.where(scales == 0, scales, torch.maximum(moved, lowest))
