"""The history of a run: GradCosine, gradient norm and loss of every step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuroinit.plots.style import (
    AFTER,
    BEFORE,
    NORMAL,
    drawable,
    legend_above,
    log_axis,
    needs_log,
    one_column,
)
from neuroinit.run.results.result import Result, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {"cosine": "GradCosine", "norm": "gradient norm", "loss": "loss"}


def history(result: Result | Sequence[StepRecord]) -> Figure:
    """GradCosine, gradient norm and loss over the steps.

    Steps that began above the bound on the norm are shaded; for :class:`~neuroinit.NIO` without a
    bound, those at which the network explodes. A quantity that the method does not
    compute has no panel.

    Args:
        result: A result, or its ``history``.

    Returns:
        A figure with one panel for each quantity.

    Raises:
        ValueError: If there is no step, or no step with one of these quantities.

    Example:
        >>> records = [StepRecord(i, 2.0, 0.3, 1.0, 1.2, 0.8, i < 2, 0.1) for i in range(5)]
        >>> len(history(records).axes)
        3
    """
    records = result.history if isinstance(result, Result) else list(result)
    known = recorded(records)
    if not known:
        raise ValueError(
            "Parameter `result` holds no step with a loss, norm or cosine: there is nothing to "
            "draw."
        )
    gamma = result.settings.get("gamma") if isinstance(result, Result) else None
    shaded = "explodes" if gamma == "auto" else "above the bound"
    made, axes = one_column(len(known), 1.15)
    for ax, name in zip(axes, known, strict=True):
        _draw(ax, records, name, gamma if isinstance(gamma, (int, float)) else None, shaded)
        ax.sharex(axes[0])
        ax.locator_params(axis="x", integer=True)
        ax.tick_params(labelbottom=ax is axes[-1])
    _explain(axes[0], axes[known.index("norm")] if "norm" in known else None, shaded)
    axes[-1].set_xlabel("step", fontsize=NORMAL)
    made.align_ylabels()
    return made


def recorded(records: Sequence[StepRecord]) -> list[str]:
    """Which of ``cosine``, ``norm`` and ``loss`` the method computed."""
    return [name for name in LABELS if any(math.isfinite(record[name]) for record in records)]


def _draw(
    ax: Axes, records: Sequence[StepRecord], name: str, gamma: float | None, shaded: str
) -> None:
    values = [record[name] for record in records]
    known = [value for value in values if math.isfinite(value)]
    log = needs_log(values) or (name == "norm" and min(known) > 0)
    steps = [record.step for record in records]
    marker = "." if len(known) == 1 else ""
    ax.plot(steps, drawable(values, log), color=AFTER, linewidth=1.2, marker=marker)
    ax.set_ylabel(LABELS[name], fontsize=NORMAL)
    for constrained, group in itertools.groupby(records, key=lambda record: record.constrained):
        span = [record.step for record in group]
        if constrained:
            ax.axvspan(span[0] - 0.5, span[-1] + 0.5, color=BEFORE, alpha=0.14, lw=0, label=shaded)
    if name == "norm" and gamma is not None:
        ax.axhline(gamma, color=BEFORE, linewidth=0.9, linestyle="--", label="bound")
    if log:
        log_axis(ax.yaxis)


def _explain(top: Axes, norm: Axes | None, shaded: str) -> None:
    """A legend for the bound and the shaded steps, if there are any."""
    found = dict(zip(*norm.get_legend_handles_labels()[::-1], strict=True)) if norm else {}
    order = [found[label] for label in ("bound", shaded) if label in found]
    if order:
        legend_above(top, order)
