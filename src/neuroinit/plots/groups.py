"""Layer groups on an axis with one position for every tensor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuroinit.plots.style import COLUMN, LINE, SMALL, shortened
from neuroinit.run.results.tensor_table import layer_groups

SHORT = 4  # letters of a name that is always horizontal

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mark_groups(ax: Axes, names: Sequence[str], labels: bool) -> None:
    """Bands behind every second layer group, and the groups' names below.

    Args:
        ax: Axes whose x values are positions in ``names``.
        names: Parameter names in the order of the model.
        labels: Write the names of the groups.
    """
    spans: list[tuple[int, int, str]] = []
    first = 0
    for group, members in itertools.groupby(layer_groups(names)):
        last = first + len(list(members)) - 1
        if len(spans) % 2:
            ax.axvspan(first - 0.5, last + 0.5, color=LINE, alpha=0.4, lw=0, zorder=0)
        spans.append((first, last, shortened(group, 18)))
        first = last + 1
    ax.set_xlim(-0.8, len(names) - 0.2)
    ax.grid(visible=False, axis="x")
    ax.tick_params(axis="x", length=0, labelbottom=labels)
    if labels:
        _label_groups(ax, spans, 0.8 * COLUMN * 72 / len(names))


def _label_groups(ax: Axes, spans: Sequence[tuple[int, int, str]], width: float) -> None:
    """The names of the groups: horizontal if all fit or are short, else vertical.

    Where they would overlap, the largest groups keep their names.

    Args:
        ax: Where to write them.
        spans: First and last position of every group, and its name.
        width: Points between two positions.
    """
    places = [((first + last) / 2, name) for first, last, name in spans]
    halves = [(0.3 * SMALL + 1.0) * len(name) for _, name in places]
    longest = max(len(name) for _, name in places)
    level = longest <= SHORT or all(
        width * (b[0] - a[0]) > x + y
        for a, b, x, y in zip(places, places[1:], halves, halves[1:], strict=False)
    )
    needed = 1.2 * SMALL if not level else 2 * max(halves) if longest <= SHORT else 0.0
    kept: list[int] = []
    for k in sorted(range(len(spans)), key=lambda k: spans[k][0] - spans[k][1]):
        if all(width * abs(places[k][0] - places[j][0]) > needed for j in kept):
            kept.append(k)
    ticks, names = [places[k][0] for k in kept], [places[k][1] for k in kept]
    ax.set_xticks(ticks, names, fontsize=SMALL, rotation=0 if level else 90)
