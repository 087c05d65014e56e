"""Remarks beside the tables and charts of a result."""

from __future__ import annotations

import math

from neuroinit.report import verdict as verdicts
from neuroinit.report.default_rule import EXPLODING
from neuroinit.report.html import number
from neuroinit.report.verdict import Verdict, bound
from neuroinit.report.words import unchanged
from neuroinit.run.results.result import Result

ALIGNED = 0.5  # gradients with a higher cosine point in one direction
EQUAL = 0.01  # a smaller difference of two cosines is not reported


def cosine_note(result: Result, verdict: Verdict) -> str:
    """How to read the change of GradCosine; empty if there is nothing to compare."""
    before, after = result.before, result.after
    if before is None or after is None:
        return ""
    if unchanged(result):
        return "Nothing was changed, so both columns are the same."
    change = f"from {number(before.cosine)} to {number(after.cosine)}"
    if abs(after.cosine - before.cosine) < EQUAL:
        return f"GradCosine hardly changed: {change}."
    if after.cosine > before.cosine:
        return (
            f"GradCosine rose {change}: the gradients of different samples agree more. This alone "
            "does not promise better training."
        )
    repaired = verdict.before == EXPLODING and verdict.status == verdicts.REPAIRED
    if repaired and before.cosine > ALIGNED:
        return (
            f"GradCosine fell {change}. This is expected after a repair: exploding gradients all "
            "point in one direction, whatever the samples are, so their cosine is high. "
            "Now the gradients depend on the samples."
        )
    text = f"GradCosine fell {change}: the gradients of different samples agree less."
    if bound(result) is not None:
        text += " NIO holds the gradient norm at its bound first, and this can lower GradCosine."
    return f"{text} A lower GradCosine alone does not mean worse training."


def cosine_pointer(result: Result) -> str:
    """Where a lower GradCosine is explained; empty if it is not lower."""
    before, after = result.before, result.after
    if before is None or after is None or after.cosine > before.cosine - EQUAL:
        return ""
    return "“Before and after” explains how to read the lower GradCosine."


def history_note(result: Result) -> str:
    """First and last norm, and the number of steps above the bound."""
    records, gamma = result.history, bound(result)
    found = []
    norms = [record.norm for record in records if math.isfinite(record.norm)]
    if norms:
        found.append(f"The norm went from {number(norms[0])} to {number(norms[-1])}.")
    if gamma is not None:
        above = sum(record.constrained for record in records)
        found.append(
            f"The bound is {number(gamma)}; {above} of {len(records)} steps began above it."
        )
    return " ".join(found)
