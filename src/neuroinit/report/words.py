"""A result in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuroinit.gradients.statistics import GradientStats
from neuroinit.report import verdict as verdicts
from neuroinit.report.html import number
from neuroinit.report.verdict import Verdict, bound, vanished
from neuroinit.run.result import Result
from neuroinit.run.tensor_table import tensor_kind, tensor_rows

SAME = 0.01  # a scale this near to 1, in its logarithm, counts as unchanged
ALIGNED = 0.5  # gradients with a higher cosine point in one direction
EQUAL = 0.01  # a smaller difference of two cosines is not worth a word

LABELS = {
    verdicts.REPAIRED: "Repaired",
    verdicts.USABLE: "No problem found",
    verdicts.UNSOLVED: "Not solved",
    verdicts.OPEN: "No verdict",
}


def headline(result: Result, verdict: Verdict) -> str:
    """What was wrong, what was changed and what to expect, in one sentence."""
    done = _done(result)
    if verdict.status == verdicts.OPEN:
        return f"{done}; {_open(result)}."
    problem = _SHORT[verdict.before]
    if verdict.status == verdicts.UNSOLVED:
        still = "still " if verdict.before == verdict.after else "now "
        return f"{problem} and {still}{_NOW[verdict.after]}; {done}, but training may fail."
    return f"{problem}; {done}, and {_PROMISE[verdict.before]}."


_SHORT = {
    verdicts.EXPLODING: "The gradients exploded",
    verdicts.VANISHING: "The gradients vanished in many layers",
    verdicts.SMALL: "The gradients were too small",
    verdicts.UNUSABLE: "The gradients were zero or not finite",
    verdicts.NO_PROBLEM: "The gradients at the start were usable",
}
_NOW = {
    verdicts.EXPLODING: "explode",
    verdicts.VANISHING: "vanish in many layers",
    verdicts.SMALL: "are too small",
    verdicts.UNUSABLE: "are zero or not finite",
}
_PROMISE = {
    verdicts.EXPLODING: "the first training steps should now be stable",
    verdicts.VANISHING: "training should now reach all layers",
    verdicts.SMALL: "training should now make progress from the first step",
    verdicts.UNUSABLE: "training can now start",
    verdicts.NO_PROBLEM: "we expect little effect on training",
}


def _done(result: Result) -> str:
    """What the method did, in a clause without its end."""
    method = result.settings.get("method", "the method")
    shrunk, enlarged = _moved(list(result.scales.values()))
    parts = [f"drew new values for {_tensors(len(result.drawn))}"] if result.drawn else []
    if enlarged:
        parts.append(f"enlarged {_tensors(enlarged)}")
    if shrunk:
        parts.append(f"shrank {_tensors(shrunk)}")
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
        ("What to expect", _expected(verdict)),
    ]


def _wrong(result: Result, verdict: Verdict) -> str:
    stats, gamma = result.before, bound(result)
    if verdict.before == verdicts.UNUSABLE:
        return "The gradients of the start were zero or not finite. No training could begin there."
    if stats is None:
        return "Not known: the gradients were not measured."
    norm = f"The gradient norm was {number(stats.norm)}"
    if gamma is None:
        text = f"{norm}. This method has no bound to compare it with."
        return f"{text} {_vanishing(stats)}" if verdict.before == verdicts.VANISHING else text
    times = stats.norm / gamma
    if verdict.before == verdicts.EXPLODING:
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
        f"whole ({_names(lost)}). These layers would hardly train."
    )


def changes(result: Result) -> str:
    """What was redrawn and scaled, weights and biases told apart, and what was not."""
    found, rows = [], tensor_rows(result)
    if result.drawn:
        found.append(f"New values were drawn for {_names(list(result.drawn))}.")
    for kind in ("weight", "bias"):
        scales = [row.scale for row in rows if row.kind == kind and not math.isnan(row.scale)]
        if scales and not (result.drawn and all(scale == 1 for scale in scales)):
            low, high = number(min(scales)), number(max(scales))
            span = f"scale {low}" if low == high else f"scales from {low} to {high}"
            found.append(f"{_tensors(len(scales), kind)}: {_moves(scales)}, {span}.")
    left = [row.kind for row in rows if math.isnan(row.scale) and not row.redrawn]
    if left:
        counts = [_tensors(left.count(kind), kind) for kind in ("weight", "bias") if kind in left]
        found.append(f"Not scaled: {joined(counts)}, because they are all zero or not selected.")
    if result.blocked:
        found.append(
            f"All-zero tensors keep the gradient from {_names(result.blocked)}, so these were "
            "not optimized. Pass reinit_zeros=0.01 to start all-zero tensors at small values."
        )
    return " ".join(found) or "No tensor was changed."


def _moves(scales: Sequence[float]) -> str:
    """How many tensors were enlarged, shrunk and left alone."""
    shrunk, enlarged = _moved(scales)
    counts = {"enlarged": enlarged, "shrunk": shrunk, "unchanged": len(scales) - shrunk - enlarged}
    known = [(word, count) for word, count in counts.items() if count]
    if len(known) == 1:
        return f"all {known[0][0]}" if len(scales) > 1 else known[0][0]
    return joined([f"{count} {word}" for word, count in known])


def _expected(verdict: Verdict) -> str:
    if verdict.status == verdicts.UNSOLVED:
        return (
            f"After the run the gradients {_NOW[verdict.after]}, so training may diverge or make "
            "no progress. Try more steps, or compare methods with neuroinit.compare."
        )
    if verdict.status == verdicts.REPAIRED:
        return (
            "Training should now start well with the usual learning rates. The final accuracy "
            "cannot be read from this page."
        )
    if verdict.status == verdicts.USABLE:
        return (
            "Little difference: a start with usable gradients usually trains as well without this "
            "method."
        )
    return "Not known. Compare short trainings from both starts with neuroinit.compare."


def cosine_note(result: Result, verdict: Verdict) -> str:
    """How to read the change of GradCosine; empty if there is nothing to compare."""
    before, after = result.before, result.after
    if before is None or after is None:
        return ""
    change = f"from {number(before.cosine)} to {number(after.cosine)}"
    if abs(after.cosine - before.cosine) < EQUAL:
        return f"GradCosine hardly changed: {change}."
    if after.cosine > before.cosine:
        return (
            f"GradCosine rose {change}: the gradients of different samples agree more. This alone "
            "does not promise better training."
        )
    repaired = verdict.before == verdicts.EXPLODING and verdict.status == verdicts.REPAIRED
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
    """Where a fall of GradCosine is explained; empty if it did not fall."""
    before, after = result.before, result.after
    if before is None or after is None or after.cosine > before.cosine - EQUAL:
        return ""
    return "Why GradCosine fell is explained below the heading “Before and after”."


def history_note(result: Result) -> str:
    """What there is to see in the chart of the steps."""
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


def _moved(scales: Sequence[float]) -> tuple[int, int]:
    """How many scales are below 1, and how many above."""
    logs = [math.log(scale) if scale > 0 else -math.inf for scale in scales]
    return sum(x < -SAME for x in logs), sum(x > SAME for x in logs)


def _tensors(count: int, kind: str = "") -> str:
    words = f"{kind} tensor" if kind else "tensor"
    return f"{count} {words}{'' if count == 1 else 's'}"


def _names(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return joined([*names[:most], *more])


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence with commas and an `and`."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
