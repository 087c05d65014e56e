"""The gradients of the sub-batches: their norms, and how well they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.plots.style import AFTER, BEFORE, NORMAL, legend_above, log_axis, one_column
from neuroinit.plots.tensors import both_sides
from neuroinit.run.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def batches(before: GradientStats | Result, after: GradientStats | None = None) -> Figure:
    """The norm of every sub-batch's gradient, and the cosine of every pair of sub-batches.

    Args:
        before: Statistics, or a result with both.
        after: Statistics to compare with.

    Returns:
        A figure with two panels.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> stats = ni.gradient_stats(torch.nn.Linear(4, 3), batch, sub_batches=4)
        >>> len(ni.plots.batches(stats).axes)
        2
    """
    if isinstance(before, Result):
        before, after = both_sides(before)
    made, (top, bottom) = one_column(2, 1.6)
    sides = [(before, AFTER if after is None else BEFORE, "before", "s")]
    if after is not None:
        sides.append((after, AFTER, "after", "o"))
    lowest = min(float(stats.cosines.min()) for stats, *_ in sides)
    for stats, color, label, marker in sides:
        norms = sorted(stats.norms.tolist())
        places = range(1, len(norms) + 1)
        top.plot(places, norms, color=color, label=label, lw=1, marker=marker, ms=3)
        _draw_pairs(bottom, stats, color, lowest)
    log_axis(top.yaxis)
    top.locator_params(axis="x", integer=True)
    top.set_xlabel("sub-batch, smallest norm first", fontsize=NORMAL)
    top.set_ylabel("gradient norm", fontsize=NORMAL)
    bottom.set_xlabel("cosine of two sub-batches' gradients", fontsize=NORMAL)
    bottom.set_ylabel("pairs", fontsize=NORMAL)
    bottom.locator_params(axis="y", integer=True)
    bottom.locator_params(axis="x", nbins=6)
    if after is not None:
        legend_above(top)
    made.align_ylabels()
    return made


def _draw_pairs(ax: Axes, stats: GradientStats, color: str, lowest: float) -> None:
    """A histogram of the cosines of all pairs, from ``lowest`` to 1."""
    count = len(stats.norms)
    cosines = stats.cosines.tolist()
    pairs = [min(cosines[i][j], 1.0) for i in range(count) for j in range(i + 1, count)]
    limits = (min(-0.05, lowest), 1.0)
    ax.hist(pairs, bins=20, range=limits, color=color, alpha=0.3, histtype="stepfilled")
    ax.hist(pairs, bins=20, range=limits, color=color, linewidth=1.2, histtype="step")
