"""Colours, sizes and axes that all figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neuroinit.common.errors import needs_extra

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

BEFORE, AFTER = "#b3452c", "#1f6f8b"  # readable in print and to colour-blind eyes
INK, SOFT, LINE = "#1d2329", "#59636e", "#d0d6dc"  # text, axes, grid
# Every method has its own colour and line style, so that lines can be told apart without colour.
METHODS = (AFTER, BEFORE, "#6a4c9c", "#2f7d4f", "#9a6a00", "#b0307a", "#4d5965", "#0057b8")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
COLUMN = 3.25  # inches: one column of a two-column paper
SMALL, NORMAL = 7, 8  # points, at the width of a column

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def figure(
    columns: int, rows: int = 1, width: float = 3.4, height: float = 2.6
) -> tuple[Figure, Any]:  # numpy has no type for arrays of axes
    """A figure with a grid of axes.

    Args:
        columns: Number of axes side by side.
        rows: Number of axes below each other.
        width: Inches of one of the axes.
        height: Inches of one of the axes.

    Returns:
        The matplotlib figure, and an array of axes with shape ``(rows, columns)``.

    Example:
        >>> made, axes = figure(2)
        >>> axes.shape
        (1, 2)
    """
    with needs_extra("plots"):
        from matplotlib.figure import Figure
    made = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    axes = made.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["bottom", "left"]].set(color=SOFT, linewidth=0.6)
        ax.grid(color=LINE, linewidth=0.5)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=NORMAL, which="both", color=SOFT, labelcolor=SOFT, width=0.6)
        ax.xaxis.label.set_color(INK)
        ax.yaxis.label.set_color(INK)
    return made, axes


def one_column(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """Axes below each other, one column wide."""
    made, axes = figure(1, rows, COLUMN, height)
    for ax in axes.flat:
        ax.tick_params(labelsize=SMALL, which="both")
    return made, list(axes.flat)


def legend_above(ax: Axes, handles: Sequence[Artist] | None = None, **changes: object) -> None:
    """A legend above the axes, without a frame; ``changes`` are keywords of ``Axes.legend``."""
    look: dict[str, object] = {
        "fontsize": SMALL,
        "labelcolor": INK,
        "frameon": False,
        "ncols": 4,
        "loc": "lower right",
        "bbox_to_anchor": (1.0, 1.0),
        "borderaxespad": 0.1,
        "handlelength": 1.6,
        "columnspacing": 1.0,
    }
    given = {} if handles is None else {"handles": list(handles)}
    ax.legend(**look | given | changes)


def log_axis(axis: XAxis | YAxis) -> None:
    """Make an axis logarithmic, with ticks that are readable in any range.

    Call it after everything has been drawn: the ticks depend on the range.

    Args:
        axis: ``ax.xaxis`` or ``ax.yaxis``.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    if decades < 0.7:
        axis.set_major_locator(MaxNLocator(4))
    else:
        subs = (1.0,) if decades > 2 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_locator(NullLocator())


def plain_number(value: float) -> str:
    """A number with at most four digits, without a formula.

    Example:
        >>> plain_number(0.05), plain_number(1e6), plain_number(2e-7)
        ('0.05', '10⁶', '2·10⁻⁷')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    power = f"10{str(int(exponent)).translate(_RAISED)}"
    return power if float(mantissa) == 1 else f"{float(mantissa):g}·{power}"


def drawable(values: Sequence[float], log: bool) -> list[float]:
    """The values; ``nan`` (a gap) for those that are not finite, or not positive on a log axis."""
    return [v if math.isfinite(v) and (v > 0 or not log) else math.nan for v in values]


def needs_log(values: Sequence[float]) -> bool:
    """Whether values are positive and differ by more than a factor of 100."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) > 100 * min(known)


def shortened(name: str, most: int) -> str:
    """The end of a long name, which tells more than its beginning.

    Example:
        >>> shortened("encoder.layers.0.weight", 12)
        '…rs.0.weight'
    """
    return name if len(name) <= most else f"…{name[1 - most :]}"
