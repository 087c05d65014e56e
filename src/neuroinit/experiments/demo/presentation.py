"""The demo's results as rows, as a table in the terminal, and as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from neuroinit import plots
from neuroinit.experiments.demo.comparison import NETWORKS, Pair
from neuroinit.experiments.figure_files import save_figure
from neuroinit.experiments.training.simple_loop import Training
from neuroinit.gradients.statistics.gradient_stats import GradientStats

if TYPE_CHECKING:
    from rich.table import Table

HIGHEST = 1e3  # a loss above it is drawn at it, so that the curves that train stay readable

Row = TypedDict(
    "Row",
    {
        "network": str,
        "start": str,  # "Kaiming" or "NIO"
        "gradient norm": float | None,  # median over seeds, `None` if it is finite for no seed
        "diverged": str,  # how many seeds had a loss that was not finite
        "accuracy": list[float],  # on the test data, one per seed
    },
)


def rows(pairs: Sequence[Pair]) -> list[Row]:
    """Summarize the seeds: one row per network and initialization."""
    found: list[Row] = []
    for network in NETWORKS:
        mine = [pair for pair in pairs if pair.network == network]
        before = [pair.result.before for pair in mine]
        after = [pair.result.after for pair in mine]
        found.append(_row(network, "Kaiming", [pair.kaiming for pair in mine], before))
        found.append(_row(network, "NIO", [pair.nio for pair in mine], after))
    return found


def _row(network: str, start: str, runs: list[Training], stats: list[GradientStats | None]) -> Row:
    norms = [found.norm for found in stats if found]
    return {
        "network": network,
        "start": start,
        "gradient norm": statistics.median(norms) if norms else None,
        "diverged": f"{sum(run.diverged for run in runs)} of {len(runs)}",
        "accuracy": [run.accuracy for run in runs],
    }


def text(found: Sequence[Row]) -> str:
    """The result in two sentences, and its limits."""
    kaiming, nio = (_outcome([r for r in found if r["start"] == s]) for s in ("Kaiming", "NIO"))
    return (
        f"From Kaiming's weights: {kaiming}. From the same weights after NIO: {nio}. A cross in "
        "the figure marks a loss that is not finite. This does not show that NIO helps a network "
        "that already trains, or anything about accuracy on larger tasks."
    )


def _outcome(found: Sequence[Row]) -> str:
    """How many trainings diverged, and the accuracies of all."""
    accuracies = [100 * accuracy for row in found for accuracy in row["accuracy"]]
    diverged = sum(int(row["diverged"].split()[0]) for row in found)
    ends = dict.fromkeys(f"{end(accuracies):.0f}" for end in (min, max))
    return (
        f"{diverged} of {len(accuracies)} trainings diverge, with test accuracies of "
        f"{' to '.join(ends)}%"
    )


def table(found: Sequence[Row], title: str) -> Table:
    """The rows as a table for the terminal."""
    from rich.box import SIMPLE
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=SIMPLE)
    for i, name in enumerate(found[0]):
        made.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
    previous = None
    for row in found:
        if previous not in (None, row["network"]):
            made.add_section()
        name = "" if previous == row["network"] else row["network"]
        previous = row["network"]
        accuracies = " ".join(f"{100 * accuracy:.0f}" for accuracy in row["accuracy"])
        norm = "-" if row["gradient norm"] is None else f"{row['gradient norm']:.2g}"
        made.add_row(name, row["start"], norm, row["diverged"], f"{accuracies} %")
    return made


def draw(pairs: Sequence[Pair], path: Path) -> None:
    """Draw loss curves of all seeds, and the gradient norm of every tensor for seed 0."""
    figure, axes = plots.figure(2, len(NETWORKS), width=4.2, height=2.5)
    for row, network in zip(axes, NETWORKS, strict=True):
        mine = [pair for pair in pairs if pair.network == network]
        for runs, color, name in (
            ([pair.kaiming for pair in mine], plots.BEFORE, "Kaiming"),
            ([pair.nio for pair in mine], plots.AFTER, "then nio_"),
        ):
            losses = [run.losses for run in runs]
            plots.draw_losses(row[0], losses, color, f"{name}: {_ends(runs)}", HIGHEST)
        row[0].set_title(network, loc="left", fontsize=9, pad=18)
        before, after = mine[0].result.before, mine[0].result.after
        if before and after:
            plots.draw_layers(row[1], before, after, "norm")
    save_figure(figure, path)


def _ends(runs: Sequence[Training]) -> str:
    """How the trainings from one initialization end, for the legend."""
    diverged = sum(run.diverged for run in runs)
    if diverged:
        return f"{diverged} of {len(runs)} diverge"
    return f"{100 * statistics.mean(run.accuracy for run in runs):.0f}% test accuracy"
