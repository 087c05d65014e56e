"""The figure of the conclusions: how many more trainings work after a method, with intervals.

    python -m benchmarks.comparisons.conclusions           # docs/evidence/conclusions.png

Made of the records of `make trainability`, on networks that the numbers of our methods were not
chosen on. Intervals are 95% by bootstrap over networks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.comparisons.gains import difference, found
from benchmarks.statistics_tools import Interval, halves
from benchmarks.trainability.standings import BEFORE
from benchmarks.trainability.suites import SUITES, Suite
from neuroinit import plots
from neuroinit.plots.style import AFTER, INK, NORMAL, SOFT
from neuroinit.plots.style import BEFORE as OTHER

FIGURE = Path(__file__).parents[2] / "docs" / "evidence" / "conclusions.png"
LETTERS = {"LSUV": "LSUV", "nio_ with branches": "nio_(..., optimizer=)"}
FRESH = {"LSUV": "LSUV", "nio_ of 2026-11-18": "nio_(..., optimizer=)"}
DIGITS = {
    "LSUV": "LSUV",
    "common factor, optimizer": "nio_(..., optimizer=)",
    "auto_ of 2026-11-17": "auto_",
}


def gains(suite: Suite, names: dict[str, str], unseen: bool) -> list[tuple[str, Interval, int]]:
    """For every method its name, the gain over the start in points, and the number of cells."""
    rows = found(suite)
    before = rows[BEFORE]
    kept = set(halves(list(suite.networks))[1]) if unseen else set(suite.networks)
    ours = [m for m in names if m != "LSUV"]
    made = []
    for method, name in names.items():
        shared = [c for c in rows[method] if c in before and c[0] in kept]
        if method == "LSUV":  # on the cells of the first of our methods
            shared = [c for c in shared if c in rows[ours[0]]]
        gain = difference(rows[method], before, shared, _points(suite))
        made.append((name, gain, len(shared)))
    return made


def _points(suite: Suite) -> Callable[[dict[str, Any]], float]:
    return lambda row: 100.0 * (row["accuracy"] >= suite.good)


def draw(path: Path = FIGURE) -> None:
    """Three panels: a suite each, a line a method."""
    panels = {
        "twelve networks, letters (present)": gains(SUITES["letters"], LETTERS, False),
        "thirteen networks, CIFAR-10 (18 November)": gains(SUITES["fresh"], FRESH, False),
        "nine networks, digits (17 November)": gains(SUITES["digits"], DIGITS, True),
    }
    figure, axes = plots.figure(3, 1, width=3.9, height=1.9)
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for place, (_, gain, _) in enumerate(lines):
            color = OTHER if place == 0 else AFTER
            ax.plot([gain.low, gain.high], [place, place], color=color, linewidth=2)
            ax.plot([gain.value], [place], marker="o", color=color, markersize=6)
            text = f"+{gain.value:.1f}"
            ax.annotate(
                text,
                (gain.value, place),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=NORMAL,
                color=INK,
            )
        ax.axvline(0, color=SOFT, linewidth=0.8)
        ax.set_yticks(range(len(lines)), [f"{n}\n{count} cells" for n, _, count in lines])
        ax.set_ylim(len(lines) - 0.4, -0.7)
        ax.set_xlim(-3, 40)
        ax.grid(visible=False, axis="y")
        ax.set_title(title, fontsize=NORMAL, loc="left", color=INK)
        ax.set_xlabel("more cells that train than as they are, points", fontsize=NORMAL)
    figure.savefig(path)


if __name__ == "__main__":
    draw()
