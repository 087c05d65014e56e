"""The text of a result, for ``print(result)``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from neuroinit.common.errors import listed
from neuroinit.gradients.engines import Unused

if TYPE_CHECKING:
    from neuroinit.run.results.result import Result

ROWS = (
    ("loss", "loss"),
    ("GradCosine", "cosine"),
    ("agreement", "agreement"),
    ("gradient norm", "norm"),
    ("largest / smallest norm", "norm_ratio"),
)


def result_text(result: Result) -> str:
    """The text of ``print(result)``.

    Args:
        result: A result of :func:`optimize`.

    Returns:
        A line about the run, a table of the statistics before and after, and remarks.
    """
    return "\n".join([_headline(result), *_measured(result), *_remarks(result)])


def ending(result: Result) -> str:
    """Why the run ended; or that short trainings chose other scales than the method's."""
    replaced = result.verified and not result.verified.startswith("applied whole")
    return "short trainings decided, see below" if replaced else result.stopped


def cell(value: float | None, digits: int = 4) -> str:
    """A number in a table of plain text; not every terminal can show the numbers of a page."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def used_engines(result: Result) -> list[str]:
    """The name of the engine; an empty list if the method used none."""
    return [] if result.engine == Unused.name else [result.engine]


def measured_rows(result: Result) -> list[tuple[str, str]]:
    """Labels and names of the statistics in the table; without the agreement if it is unknown."""
    sides = [stats for stats in (result.before, result.after) if stats is not None]
    known = any(not math.isnan(stats.agreement) for stats in sides)
    return [(label, name) for label, name in ROWS if known or name != "agreement"]


def _headline(result: Result) -> str:
    method = result.settings.get("method", "?")
    parts = [f"{len(result.drawn)} tensors drawn"] if result.drawn else []
    if result.history:
        seconds = sum(record.seconds for record in result.history)
        engine = [f"engine {name}" for name in used_engines(result)]
        word = "step" if len(result.history) == 1 else "steps"
        steps = f"{len(result.history)} {word} in {seconds:.1f} s ({ending(result)})"
        changed = sum(scale != 1.0 for scale in result.scales.values())
        parts = [steps, *engine, *parts, f"{changed} of {len(result.scales)} tensors scaled"]
    return f"{method}: {', '.join(parts) or 'nothing changed'}"


def _measured(result: Result) -> Iterator[str]:
    if result.before and result.after:
        held = "held-out batch" if result.held_out else "used batch"
        held = f"{held}, D = {len(result.after.norms)}"
        yield f"  {held:<23}{'before':>10}  {'after':>10}"
        for label, name in measured_rows(result):
            old, new = getattr(result.before, name), getattr(result.after, name)
            yield f"  {label:<23}{cell(old):>10}  {cell(new):>10}"


def _remarks(result: Result) -> Iterator[str]:
    scales = result.scales
    if any(scale != 1 for scale in scales.values()):
        low, high = min(scales, key=scales.__getitem__), max(scales, key=scales.__getitem__)
        if scales[low] == scales[high]:
            yield f"  all scales are {scales[low]:.3g}"
        else:
            yield f"  scales from {scales[low]:.3g} ({low}) to {scales[high]:.3g} ({high})"
    gamma = result.settings.get("gamma")
    if isinstance(gamma, (int, float)) and result.history:
        above = sum(record.constrained for record in result.history)
        yield f"  bound gamma = {gamma:.3g} exceeded in {above} of {len(result.history)} steps"
    if result.verified:
        yield f"  {result.verified}"
    if result.blocked:
        yield f"  no gradient because of all-zero tensors: {listed(result.blocked)}"
