"""Figures of results, one column of a paper wide; needs ``pip install "neuroinit[plots]"``.

Every function returns a matplotlib figure: ``ni.plots.history(result).savefig("history.pdf")``.
matplotlib is imported when a figure is drawn.
"""

from neuroinit.plots.methods import compare
from neuroinit.plots.steps import history
from neuroinit.plots.style import AFTER, BEFORE, COLUMN, figure
from neuroinit.plots.sub_batches import batches
from neuroinit.plots.tensors import draw_layers, layers, scales
from neuroinit.plots.training import curves, draw_losses, rollouts

__all__ = [
    "AFTER",
    "BEFORE",
    "COLUMN",
    "batches",
    "compare",
    "curves",
    "draw_layers",
    "draw_losses",
    "figure",
    "history",
    "layers",
    "rollouts",
    "scales",
]


def __dir__() -> list[str]:
    return __all__
