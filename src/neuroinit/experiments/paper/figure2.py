"""Figure 2: ways to split a batch, and the accuracy after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuroinit import plots
from neuroinit.experiments.figure_files import save_figure
from neuroinit.experiments.paper.grids import Cell
from neuroinit.experiments.paper.run_grid import Outcomes
from neuroinit.experiments.paper.table_formats import mean_and_deviation
from neuroinit.gradients.sub_batches import sub_batches


def draw_figure2(cells: Sequence[Cell], found: Outcomes, path: Path) -> None:
    """Draw the sub-batches of every cell as bars, with the test accuracy beside them."""
    figure, axes = plots.figure(1, width=6.4, height=0.75 * len(cells) + 0.6)
    ax = axes[0, 0]
    size = cells[0].config.init_size
    for line, cell in enumerate(cells):
        d, r = int(cell.row), float(cell.column)
        for i, (first, last) in enumerate(sub_batches(size, d, r, "reference")):
            bottom = -line + 0.3 - 0.6 * (i + 1) / d
            color = plots.AFTER if i % 2 else plots.BEFORE
            ax.barh(bottom, last - first, 0.6 / d, first, align="edge", color=color, alpha=0.7)
        accuracies = [100 * o.accuracy for o in found[cell.position]]
        text = f"{mean_and_deviation(accuracies, 1)} %"
        ax.text(1.04 * size, -line, text, va="center", fontsize=9)
    ax.set_yticks([-i for i in range(len(cells))], [cell.group for cell in cells])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("samples of a batch, and test accuracy after training", fontsize=8)
    ax.set_xlim(0, 1.4 * size)
    ax.set_xticks([0, size // 2, size])
    ax.grid(visible=False)
    save_figure(figure, path)
