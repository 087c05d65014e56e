"""A result as the lines that Python prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neuroinit.common.errors import listed

if TYPE_CHECKING:
    from neuroinit.run.result import Result

ROWS = (
    ("loss", "loss"),
    ("GradCosine", "cosine"),
    ("gradient norm", "norm"),
    ("largest / smallest norm", "norm_ratio"),
)


def result_text(result: Result) -> str:
    """What ``print(result)`` shows.

    Args:
        result: What ``optimize`` returned.

    Returns:
        A line about the run, the measurements before and after, and what stands out.
    """
    return "\n".join([_headline(result), *_measured(result), *_remarks(result)])


def _headline(result: Result) -> str:
    method = result.settings.get("method", "?")
    parts = [f"{len(result.drawn)} tensors drawn"] if result.drawn else []
    if result.history:
        seconds = sum(record.seconds for record in result.history)
        engine = [] if result.engine == "none" else [f"engine {result.engine}"]
        steps = f"{len(result.history)} steps in {seconds:.1f} s ({result.stopped})"
        parts = [steps, *engine, *parts, f"{len(result.scales)} tensors scaled"]
    return f"{method}: {', '.join(parts) or 'nothing changed'}"


def _measured(result: Result) -> Iterator[str]:
    if result.before and result.after:
        held = "held-out batch" if result.held_out else "a batch that was used"
        yield f"  {held:<23}{'before':>10}  {'after':>10}"
        for label, name in ROWS:
            old, new = getattr(result.before, name), getattr(result.after, name)
            yield f"  {label:<23}{old:>10.4g}  {new:>10.4g}"


def _remarks(result: Result) -> Iterator[str]:
    scales = result.scales
    if any(scale != 1 for scale in scales.values()):
        low, high = min(scales, key=scales.__getitem__), max(scales, key=scales.__getitem__)
        yield f"  scales from {scales[low]:.3g} ({low}) to {scales[high]:.3g} ({high})"
    if "gamma" in result.settings and result.history:
        above = sum(record.constrained for record in result.history)
        gamma = result.settings["gamma"]
        yield f"  bound gamma = {gamma:.3g} exceeded in {above} of {len(result.history)} steps"
    if result.verified:
        yield f"  {result.verified}"
    if result.blocked:
        yield f"  no gradient because of all-zero tensors: {listed(result.blocked)}"
