"""Updates: how a derivative by the scales moves them. Also their lower bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from neuroinit.common.checks import check_instance, check_number

State = dict[str, Tensor]


@dataclass(frozen=True)
class Position:
    """The state of a run before a step.

    Args:
        scales: One scale for every scaled tensor, float64 on the CPU.
        state: The method's own state.
        progress: Steps done, as a fraction of ``steps``.
        loss: The loss at these scales; ``nan`` if it is not known.
    """

    scales: Tensor
    state: State
    progress: float = 0.0
    loss: float = math.nan


@runtime_checkable
class Update(Protocol):
    """An update: moves the scales against a gradient. Its state is a dict of tensors."""

    def init(self, scales: Tensor) -> State:
        """The state before the first step."""
        ...

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """One step against a gradient.

        Args:
            scales: The scales before the step.
            gradient: The derivative of the objective by the scales.
            lr: The step size.
            constrained: Whether the objective is the gradient norm, because it exceeds its bound.
            state: The state of the update.

        Returns:
            The scales after the step, not yet clamped, and the new state.
        """
        ...


def check_update(update: object) -> None:
    """Raise a TypeError for anything that is not an update."""
    check_instance("update", update, Update, "an update such as `TwoMomentAdam()`")


@dataclass(frozen=True)
class Plain:
    """Gradient descent, ``w <- w - lr * gradient``: the step of Alg. 3 in NIO's paper.

    Example:
        >>> scales = torch.ones(1)
        >>> Plain().step(scales, torch.tensor([0.5]), 0.1, False, {})[0]
        tensor([0.9500])
    """

    def init(self, scales: Tensor) -> State:
        """No state."""
        return {}

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """One step; the two kinds of step do not differ."""
        return scales - lr * gradient, state


@dataclass(frozen=True)
class TwoMomentAdam:
    """Adam with a first moment for objective steps and another one for constraint steps.

    For a step of kind ``k`` (0: objective, 1: constraint) with the gradient ``g``, clipped to
    ``[-clip, clip]``, and ``t_k`` steps of that kind so far::

        m_k <- beta1 m_k + (1 - beta1) g
        s   <- beta2 s   + (1 - beta2) g^2
        w   <- w - lr * m_k / (1 - beta1^t_k) / (sqrt(s / (1 - beta2^(t_0 + t_1))) + eps)

    This is the update of the released code of GradInit (its image classifiers) and of NIO.
    GradInit's code for fairseq has a second moment ``s_k`` for each kind as well, corrected by
    ``t_k``: that is ``shared=False``.

    Args:
        clip: Bound of every entry of the gradient.
        beta1: Decay of the first moments.
        beta2: Decay of the second moment.
        eps: Added to the denominator.
        log: Step in ``log w`` instead of ``w``, so that every step multiplies a scale.
        shared: Whether both kinds of step share one second moment.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.

    Example:
        >>> adam, scales = TwoMomentAdam(), torch.ones(1)
        >>> adam.step(scales, torch.tensor([0.5]), 0.1, False, adam.init(scales))[0]
        tensor([0.9000])
    """

    clip: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    log: bool = False
    shared: bool = True

    def __post_init__(self) -> None:
        check_number("clip", self.clip, 0.0)
        check_number("beta1", self.beta1, 0.0, 1.0, closed=True)
        check_number("beta2", self.beta2, 0.0, 1.0, closed=True)
        check_number("eps", self.eps, 0.0)

    def init(self, scales: Tensor) -> State:
        """Zero moments and step counts; row 0 is for objective steps, row 1 for constraint steps.

        A second moment that is shared has one row.
        """
        zeros = torch.zeros_like(scales)
        return {
            "first": torch.stack([zeros, zeros]),
            "second": torch.stack([zeros] if self.shared else [zeros, zeros]),
            "counts": scales.new_zeros(2),
        }

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """One Adam step with the moments of its kind."""
        kind = int(constrained)
        row = 0 if self.shared else kind
        g = (gradient * scales if self.log else gradient).clamp(-self.clip, self.clip)
        first, second, counts = (state[n].clone() for n in ("first", "second", "counts"))
        counts[kind] += 1
        first[kind] = self.beta1 * first[kind] + (1 - self.beta1) * g
        second[row] = self.beta2 * second[row] + (1 - self.beta2) * g**2
        steps = float(counts.sum() if self.shared else counts[kind])
        mean = first[kind] / (1 - self.beta1 ** float(counts[kind]))
        deviation = (second[row] / (1 - self.beta2**steps)).sqrt()
        move = lr * mean / (deviation + self.eps)
        moved = scales * torch.exp(-move) if self.log else scales - move
        return moved, {"first": first, "second": second, "counts": counts}


@dataclass(frozen=True)
class OneScale:
    """One scale for the whole network: every scale takes the same step.

    Args:
        update: An update. It gets the derivative by the common factor,
            ``dL/dc = sum_k dL/dw_k`` for ``w_k = c``, in place of every ``dL/dw_k``.

    Raises:
        TypeError: If ``update`` is not an update such as ``TwoMomentAdam()``.

    Example:
        >>> scales, gradient = torch.ones(2), torch.tensor([0.5, 0.25])
        >>> OneScale(Plain()).step(scales, gradient, 1.0, False, {})[0]
        tensor([0.2500, 0.2500])
    """

    update: Update

    def __post_init__(self) -> None:
        check_update(self.update)

    def init(self, scales: Tensor) -> State:
        """The state of ``update``."""
        return self.update.init(scales)

    def step(
        self, scales: Tensor, gradient: Tensor, lr: float, constrained: bool, state: State
    ) -> tuple[Tensor, State]:
        """The same step for every scale."""
        by_factor = gradient.sum().expand_as(gradient)
        return self.update.step(scales, by_factor, lr, constrained, state)


def clamped(moved: Tensor, scales: Tensor, lowest: Tensor) -> Tensor:
    """``max(moved, lowest)`` for every scale; a scale that has reached zero stays zero.

    Args:
        moved: The scales after a step.
        scales: The scales before it.
        lowest: The lower bound of every scale.
    """
    return torch.where(scales == 0, scales, torch.maximum(moved, lowest))


def lower_bounds(names: list[str], weight: float, bias: float | None) -> Tensor:
    """The lower bound of every scale, by the name of its parameter.

    Args:
        names: Parameter names.
        weight: Lower bound for all parameters.
        bias: Another one for names with ``bias`` and without ``weight``; ``None`` for the same.

    Returns:
        Float64 on the CPU, one number for each name.

    Example:
        >>> lower_bounds(["0.weight", "0.bias"], 0.01, 0.0).tolist()
        [0.01, 0.0]
    """
    by_name = [
        bias if bias is not None and "bias" in n and "weight" not in n else weight for n in names
    ]
    return torch.tensor(by_name, dtype=torch.float64, device="cpu")
