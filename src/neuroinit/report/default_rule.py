"""Results of NIO's default rule, ``CommonFactor``: the rule itself says what was wrong."""

from __future__ import annotations

from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.methods.nio.common_factor import FOUND, NO_FACTOR, WORKS, CommonFactor
from neuroinit.report.html import number
from neuroinit.run.results.result import Result

EXPLODING, DEAD, UNUSABLE, NO_PROBLEM = "exploding", "dead", "unusable", "no problem"


def unit_loss(result: Result) -> float | None:
    """The loss with weights near zero, ``L_0``; ``None`` for other rules and methods."""
    unit = result.settings.get("unit")
    return float(unit) if isinstance(unit, (int, float)) and result.history else None


def problems(result: Result, unit: float) -> tuple[str, str]:
    """What was wrong before, and what is wrong after.

    Args:
        result: A result of the default rule.
        unit: Its ``L_0``.
    """
    before, after = NO_PROBLEM, NO_PROBLEM
    if result.before is None:
        before = UNUSABLE
    elif result.history[0].constrained:
        before = EXPLODING
    elif result.stopped != WORKS:
        before = DEAD
    if result.stopped in (NO_FACTOR, WORKS):
        after = before
    elif not result.stopped.startswith(FOUND):  # the search has not ended
        last = result.history[-1]
        still = DEAD if last.value < _field(result, "dead") else NO_PROBLEM
        after = EXPLODING if last.constrained else still
    elif result.after is not None and result.after.loss > _field(result, "explodes") * unit:
        after = EXPLODING
    return before, after


def _field(result: Result, name: str) -> float:
    """A limit of the rule that has run."""
    rule = result.settings.get("rule")
    found = rule.get(name) if isinstance(rule, dict) else None
    return float(getattr(CommonFactor(), name) if found is None else found)


def wrong(result: Result, before: GradientStats, problem: str, unit: float) -> str:
    """What was wrong with the start, with its numbers ``before``."""
    loss, norm, blind = number(before.loss), number(before.norm), number(unit)
    if problem == DEAD:
        text = f"The loss of {loss} hardly depended on any weight"
        return f"{text}. The gradient norm was {norm}."
    if problem == NO_PROBLEM:
        return (
            f"Nothing. The loss was {loss}; that of a network with weights near zero is {blind}. "
            f"The gradient norm was {norm}."
        )
    if before.loss > _field(result, "explodes") * unit:
        times = number(float(f"{before.loss / unit:.2g}"))
        return (
            f"The loss was {loss}, {times} times that of a network with weights near zero. The "
            f"gradient norm was {norm}."
        )
    return f"The gradient norm of {norm} was too large for the learning rate of the optimizer."
