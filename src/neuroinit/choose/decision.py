"""The decision of ``auto_``: which candidate is applied, and why."""

from __future__ import annotations

from collections.abc import Mapping

from neuroinit.choose.auto_result import START
from neuroinit.run.judging import Judge
from neuroinit.run.rollout import Outcome

STANDARD_ERRORS = 2.0  # by which a candidate has to be better than the model as it is


def decided(last: Mapping[str, Outcome], first_loss: float) -> tuple[str, str]:
    """The name of the candidate to apply, and the reason.

    Args:
        last: The outcomes of the short trainings of the last round, by name.
        first_loss: The first training loss of the model as it is.
    """
    judge = Judge(last[START], first_loss).among(last.values())
    best = judge.best(last)
    if not best:
        return START, "no candidate trains with this optimizer; the model is left alone"
    if best == START:
        return START, "no candidate is better; the model is left alone"
    reason = f"{judge.of(last[best])}; the start {judge.of_start()}"
    if judge.start_fails:
        return best, reason
    gain, noise = judge.lead(last[best])
    if not gain > STANDARD_ERRORS * noise:
        return START, (
            f"{best} is better by {gain:.2g}, within the noise of {STANDARD_ERRORS * noise:.2g}; "
            "the model is left alone"
        )
    return best, reason
