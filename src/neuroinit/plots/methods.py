"""One number of several methods, over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, SupportsFloat

from neuroinit.gradients.statistics.gradient_stats import Record
from neuroinit.plots.style import (
    AFTER,
    NORMAL,
    SMALL,
    SOFT,
    log_axis,
    needs_log,
    one_column,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Record | Mapping[str, object]
NAMES = {"cosine": "GradCosine", "norm": "gradient norm", "cost": "cost in training steps"}


def compare(records: Iterable[Row], column: str = "norm") -> Figure:
    """One row for each method: a dot for each seed, and the mean with its standard deviation.

    Args:
        records: Anything with ``record["method"]`` and ``record[column]``, one for each
            method and seed, as ``ni.compare`` returns.
        column: Which number to draw.

    Returns:
        A figure with one panel.

    Raises:
        ValueError: If there are no records, or they have no such number.

    Example:
        >>> rows = [{"method": m, "seed": s, "norm": 1.0 + s} for m in "ab" for s in range(3)]
        >>> [label.get_text() for label in compare(rows, "norm").axes[0].get_yticklabels()]
        ['a', 'b']
    """
    groups = _groups(records, column)
    made, (ax,) = one_column(1, 0.7 + 0.24 * len(groups))
    for row, values in enumerate(groups.values()):
        _draw_row(ax, row, values)
    if needs_log([value for values in groups.values() for value in values]):
        log_axis(ax.xaxis)
    ax.set_yticks(range(len(groups)), [shortened(name, 24) for name in groups], fontsize=SMALL)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(NAMES.get(column, column.replace("_", " ")), fontsize=NORMAL)
    return made


def _draw_row(ax: Axes, row: int, values: Sequence[float]) -> None:
    finite = [value for value in values if math.isfinite(value)]
    lost = len(values) - len(finite)
    if lost:
        ax.annotate(
            f" {lost} of {len(values)} not finite",
            (1.0, row),
            xycoords=("axes fraction", "data"),
            fontsize=SMALL,
            color=SOFT,
            va="center",
            ha="right",
        )
    if not finite:
        return
    spread = statistics.stdev(finite) if len(finite) > 1 else 0.0
    ax.scatter(finite, [row] * len(finite), s=11, color=AFTER, alpha=0.5, linewidths=0)
    ax.errorbar(statistics.fmean(finite), row, xerr=spread, color=AFTER, marker="|", ms=9, lw=1.2)


def _groups(records: Iterable[Row], column: str) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for record in records:
        try:
            value = record[column]
        except KeyError:
            keys = ", ".join(f"`{key}`" for key in record.keys())  # noqa: SIM118
            raise ValueError(
                f"Parameter `column` should be a field of the records. Found "
                f"`column = {column!r}`; the fields are: {keys}."
            ) from None
        if value is not None and not isinstance(value, SupportsFloat):
            raise ValueError(f"`column = {column!r}` holds no numbers: found `{value!r}`.")
        number = float("nan") if value is None else float(value)
        groups.setdefault(str(record["method"]), []).append(number)
    if not groups:
        raise ValueError("Parameter `records` is empty: there is nothing to draw.")
    return groups
