"""A result in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.report import verdict as verdicts
from neuroinit.report.default_rule import (
    DEAD,
    EXPLODING,
    NO_PROBLEM,
    UNUSABLE,
    unit_loss,
    wrong,
)
from neuroinit.report.html import number
from neuroinit.report.phrases import joined, moved, names_of, tensors
from neuroinit.report.verdict import Verdict, bound, confirmed, vanished
from neuroinit.run.results.result import Result
from neuroinit.run.results.tensor_table import tensor_kind, tensor_rows

LABELS = {
    verdicts.REPAIRED: "Repaired",
    verdicts.USABLE: "No problem found",
    verdicts.UNSOLVED: "Not solved",
    verdicts.OPEN: "No verdict",
    verdicts.LEFT: "Left alone",
}


def label(result: Result, verdict: Verdict) -> str:
    """The verdict in a few words."""
    if verdict.status == verdicts.USABLE and confirmed(result):
        return "Confirmed by short trainings"
    return LABELS[verdict.status]


def headline(result: Result, verdict: Verdict) -> str:
    """What was wrong, what was changed and what to expect, in one sentence."""
    done = _done(result)
    if verdict.status == verdicts.OPEN:
        return f"{done}; {_open(result)}."
    problem = _SHORT[verdict.before]
    if verdict.status == verdicts.UNSOLVED:
        still = "still " if verdict.before == verdict.after else "now "
        return f"{problem} and {still}{_NOW[verdict.after]}; {done}, and training may fail."
    if verdict.status == verdicts.LEFT:
        return f"{problem}; the model was left alone, since short trainings confirmed no change."
    if result.verified:
        return f"{problem}; {done}, and short trainings with the optimizer confirmed it."
    if verdict.before == NO_PROBLEM and unchanged(result):
        return f"{problem}; {done}."
    return f"{problem}; {done}, and {_PROMISE[verdict.before]}."


_SHORT = {
    EXPLODING: "The gradients exploded",
    DEAD: "The network was dead",
    verdicts.VANISHING: "The gradients vanished in many layers",
    verdicts.SMALL: "The gradients were too small",
    UNUSABLE: "The gradients were zero or not finite",
    verdicts.NOT_MEASURED: "The gradients were not measured",
    NO_PROBLEM: "The gradients at the start were usable",
}
_NOW = {
    EXPLODING: "explode",
    DEAD: "is dead",
    verdicts.VANISHING: "vanish in many layers",
    verdicts.SMALL: "are too small",
    UNUSABLE: "are zero or not finite",
}
_PROMISE = {
    EXPLODING: "the first training steps should now be stable",
    DEAD: "training should now make progress from the first step",
    verdicts.VANISHING: "training should now reach all layers",
    verdicts.SMALL: "training should now make progress from the first step",
    UNUSABLE: "training can now start",
    NO_PROBLEM: "we expect little effect on training",
}


def _done(result: Result) -> str:
    """What the method did, in a clause without its end."""
    method = result.settings.get("method", "the method")
    shrunk, enlarged = moved(list(result.scales.values()))
    parts = [f"drew new values for {tensors(len(result.drawn))}"] if result.drawn else []
    if enlarged:
        parts.append(f"enlarged {tensors(enlarged)}")
    if shrunk:
        parts.append(f"shrank {tensors(shrunk)}")
    return f"{method} {joined(parts) if parts else 'changed nothing'}"


def _open(result: Result) -> str:
    before, after = result.before, result.after
    if before is None or after is None:
        return "no gradients were measured, so this page cannot say what to expect"
    return (
        f"the gradient norm went from {number(before.norm)} to {number(after.norm)}, and only a "
        "short training can show whether this helps"
    )


def details(result: Result, verdict: Verdict) -> list[tuple[str, str]]:
    """The three parts of the verdict, with their numbers."""
    return [
        ("What was wrong", _wrong(result, verdict)),
        ("What was changed", changes(result)),
        ("What to expect", _expected(result, verdict)),
    ]


def _wrong(result: Result, verdict: Verdict) -> str:
    stats, gamma, unit = result.before, bound(result), unit_loss(result)
    if verdict.before == UNUSABLE:
        return "The gradients of the start were zero or not finite. No training could begin there."
    if stats is None:
        return "Not known: the gradients were not measured."
    if unit is not None:
        return wrong(result, stats, verdict.before, unit)
    norm = f"The gradient norm was {number(stats.norm)}"
    if gamma is None:
        text = f"{norm}. This method has no bound to compare it with."
        return f"{text} {_vanishing(stats)}" if verdict.before == verdicts.VANISHING else text
    times = stats.norm / gamma
    if verdict.before == EXPLODING:
        return (
            f"{norm}, {number(float(f'{times:.2g}'))} times the bound of {number(gamma)}. "
            "Training steps of the usual size would overshoot."
        )
    if verdict.before == verdicts.VANISHING:
        return _vanishing(stats)
    if verdict.before == verdicts.SMALL:
        return f"{norm}, far below the bound of {number(gamma)}. Training would start slowly."
    return f"Nothing. {norm}, and the bound is {number(gamma)}."


def _vanishing(stats: GradientStats) -> str:
    lost = vanished(stats)
    total = sum(tensor_kind(layer.name) == "weight" for layer in stats.layers)
    return (
        f"In {len(lost)} of {total} weight tensors the gradient was less than a thousandth of the "
        f"whole ({names_of(lost)}). These layers would hardly train."
    )


def changes(result: Result) -> str:
    """What was redrawn and scaled, separately for weights and biases, and what was not."""
    found, rows = [], tensor_rows(result)
    if unchanged(result) and not result.blocked:
        return "Nothing: all scales are 1."
    if result.drawn:
        found.append(f"New values were drawn for {names_of(list(result.drawn))}.")
    for kind in ("weight", "bias"):
        scales = [row.scale for row in rows if row.kind == kind and not math.isnan(row.scale)]
        if scales and not (result.drawn and all(scale == 1 for scale in scales)):
            low, high = number(min(scales)), number(max(scales))
            span = f"scale {low}" if low == high else f"scales from {low} to {high}"
            found.append(f"{tensors(len(scales), kind)}: {_moves(scales)}, {span}.")
    left = [row.kind for row in rows if math.isnan(row.scale) and not row.redrawn]
    if left:
        counts = [tensors(left.count(kind), kind) for kind in ("weight", "bias") if kind in left]
        found.append(f"Not scaled: {joined(counts)}, because they are all zero or not selected.")
    if result.blocked:
        found.append(
            f"All-zero tensors keep the gradient from {names_of(result.blocked)}, so these were "
            "not optimized. Pass reinit_zeros=0.01 to start all-zero tensors at small values."
        )
    return " ".join(found) or "No tensor was changed."


def unchanged(result: Result) -> bool:
    """Whether the model is as it was: all scales are 1, and nothing was drawn."""
    return not result.drawn and all(scale == 1 for scale in result.scales.values())


def _moves(scales: Sequence[float]) -> str:
    """How many tensors were enlarged, shrunk and left alone."""
    shrunk, enlarged = moved(scales)
    counts = {"enlarged": enlarged, "shrunk": shrunk, "unchanged": len(scales) - shrunk - enlarged}
    known = [(word, count) for word, count in counts.items() if count]
    if len(known) == 1:
        return f"all {known[0][0]}" if len(scales) > 1 else known[0][0]
    return joined([f"{count} {word}" for word, count in known])


def _expected(result: Result, verdict: Verdict) -> str:
    if result.verified:
        decision = f"{result.verified[0].upper()}{result.verified[1:]}"
        return f"Short trainings with the optimizer decided. {decision}."
    if verdict.status == verdicts.UNSOLVED:
        return (
            "The problem is still there after the run, so training may diverge or make no "
            "progress. Try more steps, or compare methods with neuroinit.compare."
        )
    if verdict.status == verdicts.REPAIRED:
        return (
            "Training should now start well with the usual learning rates. The final accuracy "
            "cannot be read from this page."
        )
    if verdict.status == verdicts.USABLE and unchanged(result):
        return "No difference: the model is unchanged."
    if verdict.status == verdicts.USABLE:
        return (
            "Little difference: a start with usable gradients usually trains as well without this "
            "method."
        )
    return "Not known. Compare short trainings from both starts with neuroinit.compare."
