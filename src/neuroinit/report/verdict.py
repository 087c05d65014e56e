"""What was wrong with a start, and whether that is solved."""

from __future__ import annotations

from dataclasses import dataclass

from neuroinit.gradients.statistics import GradientStats
from neuroinit.run.result import Result
from neuroinit.run.tensor_table import tensor_kind

FAR = 5.0  # a norm this many times above or below the bound is a problem; NIO shrinks from there
VANISHED = 1e-3  # a tensor's gradient below this share of the whole gradient's norm
MANY = 0.25  # a problem if more than this share of the weight tensors have such a gradient

EXPLODING, SMALL, VANISHING = "exploding", "small", "vanishing"
UNUSABLE, NO_PROBLEM, NOT_MEASURED = "unusable", "no problem", "not measured"
REPAIRED, USABLE, UNSOLVED, OPEN = "repaired", "usable", "unsolved", "open"


@dataclass(frozen=True)
class Verdict:
    """A result in short.

    Args:
        status: ``"repaired"`` (a problem is solved), ``"usable"`` (there was none), ``"unsolved"``
            (there is one after the run), or ``"open"`` (the result does not tell).
        before: What was wrong with the start.
        after: What is wrong after the run.
    """

    status: str
    before: str
    after: str


def judge(result: Result) -> Verdict:
    """The verdict on a result.

    The gradient norm is compared with the bound of NIO. Other methods have no such bound: of these
    we can only say whether gradients are finite, and whether they vanish in some tensors.

    Args:
        result: What ``optimize`` returned.
    """
    gamma = bound(result)
    before, after = (_problem(stats, gamma) for stats in (result.before, result.after))
    if result.before is None and result.after is not None:
        before = UNUSABLE
    elif result.before is not None and result.after is None:
        after = UNUSABLE
    return Verdict(_status(before, after, gamma is not None), before, after)


def bound(result: Result) -> float | None:
    """The gradient norm that NIO holds; ``None`` for other methods and for runs without a step."""
    gamma = result.settings.get("gamma")
    known = result.settings.get("method") == "NIO" and isinstance(gamma, (int, float))
    return float(gamma) if known and gamma else None


def vanished(stats: GradientStats) -> list[str]:
    """Weight tensors whose gradient is tiny; tensors without any gradient are not counted."""
    return [
        layer.name
        for layer in stats.layers
        if tensor_kind(layer.name) == "weight" and 0 < layer.norm < VANISHED * stats.norm
    ]


def _problem(stats: GradientStats | None, gamma: float | None) -> str:
    if stats is None:
        return NOT_MEASURED
    if gamma is not None and stats.norm > FAR * gamma:
        return EXPLODING
    weights = [layer for layer in stats.layers if tensor_kind(layer.name) == "weight"]
    if len(vanished(stats)) > MANY * len(weights):
        return VANISHING
    return SMALL if gamma is not None and stats.norm < gamma / FAR else NO_PROBLEM


def _status(before: str, after: str, bounded: bool) -> str:
    if after == NOT_MEASURED:
        return OPEN
    if after != NO_PROBLEM:
        return UNSOLVED
    if before != NO_PROBLEM:
        return REPAIRED
    return USABLE if bounded else OPEN
