"""Tables and curves of :mod:`benchmarks.medium.run`, from its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.medium.starts import (
    EPOCHS,
    NETWORKS,
    NORMS,
    OTHER_TAU,
    SMOOTHED,
    SPLITS,
    STARTS,
)
from benchmarks.statistics_tools import Interval, paired

PAGES = Path(__file__).parents[2] / "docs" / "evidence"
SPLITS_OF_FIGURE2 = ("sample-wise", "D=2, r=0", "D=2, r=0.6", "D=4, r=0.2")
REFERENCE = "Kaiming"
SEEDS = 3  # fewest of a row of the tables
Row = dict[str, Any]


def tables(rows: list[Row]) -> str:
    """Markdown: a table a network, and the ablation of D and r."""
    parts = [_table(rows, network, [*STARTS, *OTHER_TAU]) for network in NETWORKS]
    parts.append(_table(rows, "ResNet-8", [REFERENCE, *SPLITS], NORMS[:1]))
    return "\n\n".join(part for part in parts if part)


def _table(rows: list[Row], network: str, starts: list[str], norms: tuple[str, ...] = NORMS) -> str:
    """Accuracies and their differences from Kaiming, paired by seed."""
    lines = []
    for norm in norms:
        own = [r for r in rows if (r["network"], r["norm"]) == (network, norm)]
        found = {start: {r["seed"]: r for r in own if r["start"] == start} for start in starts}
        for start, seeds in found.items():  # a run that was interrupted has starts of fewer seeds
            shared = sorted(seeds.keys() & found[REFERENCE].keys())
            if len(shared) >= SEEDS:
                mine, reference = ([s[k] for k in shared] for s in (seeds, found[REFERENCE]))
                lines.append(f"| {norm} | {start} | {_line(mine, reference)} |")
    if len({line.split(" | ")[1] for line in lines}) < 2:
        return ""
    head = f"| {network}, {EPOCHS[network]} epochs | start | seeds | test accuracy, % |"
    head += " over Kaiming, points | mean training loss | over Kaiming | cost, training steps |"
    return "\n".join([head, "|---" * 8 + "|", *lines])


def _line(mine: list[Row], reference: list[Row]) -> str:
    accuracies = [100 * r["accuracy"] for r in mine]
    gain = paired(accuracies, [100 * r["accuracy"] for r in reference])
    cells = [str(len(mine)), f"{sum(accuracies) / len(mine):.1f}", _text(gain, 1)]
    if any(r["area"] is None for r in mine + reference):
        cells += ["diverged", ""]
    else:
        areas = [r["area"] for r in mine]
        cells.append(f"{sum(areas) / len(mine):.3f}")
        cells.append(_text(paired(areas, [r["area"] for r in reference]), 3))
    costs = sorted(r["cost"] for r in mine)
    return " | ".join([*cells, str(costs[len(costs) // 2])])


def _text(found: Interval, digits: int) -> str:
    """Bold if the interval excludes zero; nothing for Kaiming itself and for one seed."""
    if found.value == found.low == found.high == 0 or found.low == float("-inf"):
        return ""
    return f"**{found.text(digits)}**" if found.certain else found.text(digits)


def gains(rows: list[Row], path: Path = PAGES / "medium.png") -> None:
    """Accuracy over Kaiming's with intervals, after 5 and 30 epochs."""
    _draw(rows, ["ResNet-8", "ResNet-8, long"], _gains_panel, path)


def curves(rows: list[Row], path: Path = PAGES / "medium-curves.png") -> None:
    """Training loss from every start."""
    _draw(rows, ["ResNet-8"], _curves_panel, path)


def splits(rows: list[Row], path: Path = PAGES / "medium-splits.png") -> None:
    """Figure 2 of the paper: training loss after other sub-batches."""
    _draw(rows, ["ResNet-8"], _splits_panel, path, NORMS[:1])


FIGURES = {"gains": gains, "curves": curves, "splits": splits}


def _draw(
    rows: list[Row],
    networks: list[str],
    panel: Callable[[Any, list[Row], str], None],
    path: Path,
    norms: tuple[str, ...] = NORMS,
) -> None:
    """A row of panels for each network, a column with BatchNorm and one without."""
    from neuroinit import plots
    from neuroinit.common.files import replacing

    made, axes = plots.figure(len(norms), len(networks), width=8.0 / len(norms), height=2.6)
    for line, network in zip(axes, networks, strict=True):
        for ax, norm in zip(line, norms, strict=True):
            own = [r for r in rows if (r["network"], r["norm"]) == (network, norm)]
            panel(ax, own, f"{network}, {norm}")
    with replacing(path) as temporary:
        made.savefig(temporary, format="png")


def _gains_panel(ax: Any, rows: list[Row], title: str) -> None:
    """Test accuracy over Kaiming's, with its interval: a line a start of at least three seeds."""
    reference = _by_seed(rows, REFERENCE)
    starts = [s for s in STARTS if s != REFERENCE and len(_shared(rows, s, reference)) > 2]
    for height, start in enumerate(reversed(starts)):
        mine, theirs = _accuracies(rows, start, reference)
        found = paired(mine, theirs)
        ax.plot([found.low, found.high], [height, height], color="C0", linewidth=2)
        ax.plot([found.value], [height], "o", color="C0")
        ax.plot([a - b for a, b in zip(mine, theirs, strict=True)], [height] * len(mine), "|k")
    ax.axvline(0.0, color="black", linewidth=0.6)
    ax.set_yticks(range(len(starts)), list(reversed(starts)), fontsize=7)
    epochs = EPOCHS[rows[0]["network"]] if rows else 0
    name = title.replace(", long", "")
    ax.set_title(f"{name}, {epochs} epochs", fontsize=8)
    ax.set_xlabel("test accuracy over Kaiming's, points", fontsize=8)


def _curves_panel(ax: Any, rows: list[Row], title: str) -> None:
    """Training loss from every start, mean over seeds."""
    _curves(ax, rows, title, {start: start for start in STARTS})


def _splits_panel(ax: Any, rows: list[Row], title: str) -> None:
    """Training loss after other sub-batches, on the seeds that all of them have."""
    starts = (REFERENCE, *SPLITS_OF_FIGURE2)
    seeds = set.intersection(*(set(_by_seed(rows, start)) for start in starts))
    own = [r for r in rows if r["seed"] in seeds]
    labels = {}
    for start in starts:
        found = [100 * r["accuracy"] for r in own if r["start"] == start]
        labels[start] = f"{start}: {sum(found) / len(found):.1f}%" if found else start
    _curves(ax, own, title, labels)


def _curves(ax: Any, rows: list[Row], title: str, labels: dict[str, str]) -> None:
    """A curve for each start, the mean over its rows."""
    for start, label in labels.items():
        own = [r["curve"] for r in rows if r["start"] == start]
        if own:
            means = [sum(x) / len(x) for x in zip(*own, strict=False)]
            ax.plot([SMOOTHED * (k + 0.5) for k in range(len(means))], means, label=label)
    ax.set_title(f"{title}: training loss", fontsize=8)
    ax.set_xlabel("step", fontsize=8)
    ax.set_ylim(1.0, 2.6)
    ax.legend(fontsize=6, frameon=False)


def _by_seed(rows: list[Row], start: str) -> dict[int, Row]:
    return {r["seed"]: r for r in rows if r["start"] == start}


def _shared(rows: list[Row], start: str, reference: dict[int, Row]) -> list[int]:
    return sorted(_by_seed(rows, start).keys() & reference.keys())


def _accuracies(
    rows: list[Row], start: str, reference: dict[int, Row]
) -> tuple[list[float], list[float]]:
    """In percent, of a start and of the reference, seed by seed."""
    mine, seeds = _by_seed(rows, start), _shared(rows, start, reference)
    return [100 * mine[k]["accuracy"] for k in seeds], [
        100 * reference[k]["accuracy"] for k in seeds
    ]
