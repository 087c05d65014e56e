"""Figures of results, sized for one column of a paper; needs ``pip install "neuroinit[plots]"``."""

from neuroinit.plots.figures import (
    AFTER,
    BEFORE,
    COLUMN,
    batches,
    compare,
    draw_layers,
    draw_losses,
    figure,
    history,
    layers,
    rollouts,
    scales,
)

__all__ = [
    "AFTER",
    "BEFORE",
    "COLUMN",
    "batches",
    "compare",
    "draw_layers",
    "draw_losses",
    "figure",
    "history",
    "layers",
    "rollouts",
    "scales",
]
