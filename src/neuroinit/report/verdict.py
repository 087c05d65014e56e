"""What was wrong with a start, and whether that is solved."""

from __future__ import annotations

from dataclasses import dataclass

from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.report.default_rule import (
    EXPLODING,
    NO_PROBLEM,
    UNUSABLE,
    problems,
    unit_loss,
)
from neuroinit.run.results.result import Result
from neuroinit.run.results.tensor_table import tensor_kind

FAR = 5.0  # a norm this many times above or below the bound is a problem; NIO shrinks from there
VANISHED = 1e-3  # a tensor's gradient below this share of the whole gradient's norm
MANY = 0.25  # a problem if more than this share of the weight tensors have such a gradient

SMALL, VANISHING, NOT_MEASURED = "small", "vanishing", "not measured"
REPAIRED, USABLE, UNSOLVED, OPEN = "repaired", "usable", "unsolved", "open"
LEFT = "left"


@dataclass(frozen=True)
class Verdict:
    """A result in short.

    Args:
        status: ``"repaired"`` (a problem is solved), ``"usable"`` (there was none), ``"unsolved"``
            (there is one after the run), ``"left"`` (short trainings did not confirm the change),
            or ``"open"`` (the result does not tell).
        before: What was wrong with the start.
        after: What is wrong after the run.
    """

    status: str
    before: str
    after: str


def judge(result: Result) -> Verdict:
    """The verdict on a result.

    The default rule of NIO says itself what was wrong. With a bound, the gradient norm is compared
    with it. Other methods have no such number: of these we can only say whether gradients are
    finite, and whether they vanish in some tensors.

    Args:
        result: What ``optimize`` returned.
    """
    gamma, unit = bound(result), unit_loss(result)
    if unit is not None:
        before, after = problems(result, unit)
    else:
        before, after = _measured_problems(result, gamma)
    if result.verified and not confirmed(result):
        return Verdict(LEFT, before, before)
    if confirmed(result) and not result.verified.startswith("applied whole"):
        after = NO_PROBLEM  # scales of another candidate: the short trainings are the measure
    return Verdict(_status(before, after, gamma is not None or unit is not None), before, after)


def confirmed(result: Result) -> bool:
    """Whether short trainings confirmed the change, or a part of it."""
    return result.verified.startswith("applied")


def _measured_problems(result: Result, gamma: float | None) -> tuple[str, str]:
    before, after = (_problem(stats, gamma) for stats in (result.before, result.after))
    if result.before is None and result.after is not None:
        before = UNUSABLE
    elif result.before is not None and result.after is None:
        after = UNUSABLE
    return before, after


def bound(result: Result) -> float | None:
    """The gradient norm that NIO holds; ``None`` for other methods and for runs without a step."""
    gamma = result.settings.get("gamma")
    if result.settings.get("method") != "NIO" or not isinstance(gamma, (int, float)):
        return None
    return float(gamma) or None


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
