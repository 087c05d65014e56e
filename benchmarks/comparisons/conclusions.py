"""The figure of the conclusions: how many more trainings work after a method, with intervals.

    python -m benchmarks.comparisons.conclusions           # docs/evidence/conclusions.png

Made of the records of `make trainability`, on networks that the numbers of our methods were not
chosen on. Intervals are 95% by bootstrap over networks.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.comparisons.unseen import PRESENT, against, unseen
from benchmarks.statistics_tools import Compared
from benchmarks.trainability.standings import BEFORE
from neuroinit import plots
from neuroinit.plots.style import AFTER, INK, NORMAL, SOFT
from neuroinit.plots.style import BEFORE as OTHER

FIGURE = Path(__file__).parents[2] / "docs" / "evidence" / "conclusions.png"
NAMES = dict(zip(("LSUV", *PRESENT), ("LSUV", "nio_", "auto_"), strict=True))
PANELS = {
    "distortions": "eight networks, distorted images",
    "strokes": "eight networks, drawn figures",
    "other": "twelve networks, CIFAR-10",
    "digits": "nine networks, digits",
}


def gains(suite: str) -> list[tuple[str, Compared, int]]:
    """For every method its name, the gain over the start in points, and the number of cells."""
    rows = unseen(suite)
    before = rows[BEFORE]
    made = []
    for method, name in NAMES.items():
        shared = [c for c in rows.get(method, {}) if c in before]
        if method == "LSUV":  # on the cells of the first of our methods
            shared = [c for c in shared if c in rows[PRESENT[0]]]
        if shared:
            made.append((name, against(rows[method], before, shared), len(shared)))
    return made


def draw(path: Path = FIGURE) -> None:
    """Four panels: a suite each, a line a method."""
    figure, axes = plots.figure(2, 2, width=4.6, height=1.9)
    panels = (ax for row in axes for ax in row)
    for ax, (suite, title) in zip(panels, PANELS.items(), strict=True):
        lines = gains(suite)
        for place, (_, gain, _) in enumerate(lines):
            color = OTHER if place == 0 else AFTER
            ax.plot([gain.low, gain.high], [place, place], color=color, linewidth=2)
            ax.plot([gain.mean], [place], marker="o", color=color, markersize=6)
            text = f"{gain.mean:+.1f}"
            ax.annotate(
                text,
                (gain.mean, place),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=NORMAL,
                color=INK,
            )
        ax.axvline(0, color=SOFT, linewidth=0.8)
        ax.set_yticks(range(len(lines)), [f"{n}\n{count} cells" for n, _, count in lines])
        ax.set_ylim(len(lines) - 0.4, -0.7)
        ax.set_xlim(-20, 50)
        ax.grid(visible=False, axis="y")
        ax.set_title(title, fontsize=NORMAL, loc="left", color=INK)
        ax.set_xlabel("more cells that train than as they are, points", fontsize=NORMAL)
    figure.savefig(path)


if __name__ == "__main__":
    draw()
