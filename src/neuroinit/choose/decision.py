"""The decision of ``auto_``: which candidate is applied, and why, from validation losses."""

from __future__ import annotations

import math
from collections.abc import Mapping

from neuroinit.choose.auto_result import HIGHER_RATE, START
from neuroinit.run.rollout import lead, mean

STANDARD_ERRORS = 2.0  # by which a candidate has to be better than the model as it is


def decided(
    last: Mapping[str, list[float]], higher_rate: Mapping[str, list[float]]
) -> tuple[str, str]:
    """The name of the candidate to apply, and the reason.

    Args:
        last: Validation losses after the last round of rollouts, by name.
        higher_rate: The same at a higher learning rate, if that was tried.
    """
    best = min(last, key=lambda name: mean(last[name]))
    theirs, start = mean(last[best]), mean(last[START])
    if not math.isfinite(theirs):
        return START, "no start trains with this optimizer; the model is left alone"
    if best == START:
        return START, "nothing does better; the model is left alone"
    if not math.isfinite(start):
        return best, f"loss {theirs:.4g}, where the start diverges"
    gain, noise = lead(last[START], last[best])
    if not gain > STANDARD_ERRORS * noise:
        return START, (
            f"{best} is ahead by {gain:.2g}, within the noise of {noise:.2g}; "
            "the model is left alone"
        )
    if best in higher_rate and mean(higher_rate[best]) > mean(higher_rate[START]):
        return START, (
            f"{best} is ahead, but not at {HIGHER_RATE:g} times the rate, so it is near "
            "divergence; the model is left alone"
        )
    return best, f"loss {theirs:.4g}, where the start reaches {start:.4g}"
