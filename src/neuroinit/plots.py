"""Records -> figures; needs ``pip install "neuroinit[plots]"``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neuroinit.diagnose import GradientStats
from neuroinit.errors import needs_extra
from neuroinit.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEFORE, AFTER = "#b3452c", "#1f6f8b"  # readable in print and to colour-blind eyes


def figure(columns: int, rows: int = 1, width: float = 3.4, height: float = 2.6) -> tuple[Any, Any]:
    """A figure with a grid of axes, in the sizes of a paper's columns."""
    with needs_extra("plots"):
        from matplotlib.figure import Figure
    made = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    axes = made.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.tick_params(labelsize=8)
    return made, axes


def history(result: Result) -> Figure:
    """Loss, cosine and norm over the steps; steps above the bound are shaded."""
    made, axes = figure(3)
    steps = [record.step for record in result.history]
    for ax, name, label in zip(
        axes[0], ("loss", "cosine", "norm"), ("loss", "GradCosine", "gradient norm"), strict=True
    ):
        ax.plot(steps, [record[name] for record in result.history], color=AFTER)
        ax.set_xlabel("step", fontsize=8)
        ax.set_title(label, fontsize=9)
        for record in result.history:
            if record.constrained:
                ax.axvspan(record.step - 0.5, record.step + 0.5, color=BEFORE, alpha=0.12, lw=0)
    axes[0, 2].set_yscale("log")
    return made  # type: ignore[no-any-return]


def layers(before: GradientStats, after: GradientStats) -> Figure:
    """Norm and cosine of every parameter tensor's gradient, before and after (Fig. 3)."""
    made, axes = figure(2)
    draw_layers(axes[0, 0], before, after, "norm")
    draw_layers(axes[0, 1], before, after, "cosine")
    return made  # type: ignore[no-any-return]


def draw_layers(ax: Axes, before: GradientStats, after: GradientStats, quantity: str) -> None:
    """One quantity of every tensor but biases, first to last, on given axes."""
    for stats, color, label in ((before, BEFORE, "before"), (after, AFTER, "after")):
        values = [layer[quantity] for layer in stats.layers if not layer.name.endswith("bias")]
        ax.plot(range(len(values)), values, color=color, label=label, linewidth=1, marker=".", ms=3)
    if quantity == "norm":
        ax.set_yscale("log")
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("weight tensor, first to last", fontsize=8)
    ax.set_title(f"gradient {quantity} of every weight tensor", fontsize=9)
    ax.legend(fontsize=8, frameon=False)


def draw_losses(ax: Axes, curves: Sequence[Sequence[float]], color: str, label: str) -> None:
    """Training losses of several seeds in one colour; a cross where a loss is not finite."""
    for i, curve in enumerate(curves):
        finite = [value for value in curve if math.isfinite(value)]
        ax.plot(finite, color=color, linewidth=1, alpha=0.8, label=label if i == 0 else None)
        if len(finite) < len(curve):
            ax.plot(len(finite) - 1, finite[-1], marker="x", color=color, ms=6)
    ax.set_yscale("log")
    ax.set_xlabel("step", fontsize=8)
    ax.legend(fontsize=8, frameon=False)
