"""Loss curves of trainings that started differently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from neuroinit.choose.auto_result import AutoResult
from neuroinit.choose.comparison_table import Comparison
from neuroinit.common.checks import check_choice
from neuroinit.plots.steps import LABELS
from neuroinit.plots.style import (
    DASHES,
    METHODS,
    NORMAL,
    legend_above,
    log_axis,
    one_column,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CEILING = 10.0  # times the lowest first loss: a loss above it is drawn at the upper edge


def rollouts(result: AutoResult) -> Figure:
    """The training loss of every candidate of :func:`neuroinit.auto_`; the winner's line is thick.

    A cross marks where a loss was not finite.

    Args:
        result: What ``auto_`` returned.

    Returns:
        A figure with one panel.

    Example:
        >>> import neuroinit as ni
        >>> losses = (2.0, 1.5, 1.0)
        >>> tried = [ni.CandidateRecord(n, (1.0,), 3, 0.1, losses) for n in ("NIO", "LSUV")]
        >>> len(ni.plots.rollouts(ni.AutoResult("NIO", tried, "lowest loss")).axes[0].lines)
        2
    """
    runs = {record.name: [record.losses] for record in result.candidates if record.losses}
    made, ax = _lines(runs, thick=result.winner)
    ax.set_xlabel("training step", fontsize=NORMAL)
    ax.set_ylabel("training loss", fontsize=NORMAL)
    return made


def curves(comparison: Comparison, quantity: str = "training") -> Figure:
    """The curves of every method of :func:`neuroinit.compare`, one line for each seed.

    Args:
        comparison: What ``compare`` returned.
        quantity: ``"training"`` for the losses that ``train`` returned; ``"cosine"``, ``"norm"``
            or ``"loss"`` for the steps of the methods.

    Returns:
        A figure with one panel.

    Raises:
        ValueError: If the comparison has no such curve.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(4)]
        >>> methods = [ni.NIO(gamma=1.0, steps=3), ni.GradInit(steps=3)]
        >>> factory = lambda: torch.nn.Linear(4, 3)
        >>> found = ni.compare(factory, batches, methods, seeds=[0], show=False)
        >>> len(ni.plots.curves(found, "norm").axes[0].lines)
        2
    """
    check_choice("quantity", quantity, ("training", *LABELS))
    runs = comparison_curves(comparison, quantity)
    if not runs:
        fix = (
            "return `(score, losses)` from `train`"
            if quantity == "training"
            else "compare methods that take steps, such as `NIO()`"
        )
        raise ValueError(f"The comparison has no curves for `quantity = {quantity!r}`: {fix}.")
    made, ax = _lines(runs, comparison.methods, linear=quantity == "cosine")
    training = quantity == "training"
    ax.set_xlabel("training step" if training else "step of the method", fontsize=NORMAL)
    ax.set_ylabel("training loss" if training else LABELS[quantity], fontsize=NORMAL)
    return made


def comparison_curves(comparison: Comparison, quantity: str) -> dict[str, list[Sequence[float]]]:
    """One list of values for each method and seed; methods without values are left out."""
    found: dict[str, list[Sequence[float]]] = {}
    for (method, _), known in comparison.curves.items():
        values = (
            list(known.losses)
            if quantity == "training"
            else [record[quantity] for record in known.history]
        )
        if any(not math.isnan(value) for value in values) or (values and quantity == "training"):
            found.setdefault(method, []).append(values)
    return found


def draw_losses(
    ax: Axes,
    curves: Sequence[Sequence[float]],
    color: str,
    label: str,
    ceiling: float = math.inf,
) -> None:
    """Training losses of several seeds in one colour, on a logarithmic axis.

    A cross marks where a loss was not finite.

    Args:
        ax: Where to draw.
        curves: The losses of each seed.
        color: Of all lines.
        label: In the legend.
        ceiling: A loss above it is drawn at it.

    Example:
        >>> import neuroinit as ni
        >>> made, axes = ni.plots.figure(1)
        >>> ni.plots.draw_losses(axes[0, 0], [[2.0, 1.0], [2.0, math.inf]], "C0", "SGD")
    """
    _draw_curves(ax, curves, ceiling, label, color, alpha=0.8)
    log_axis(ax.yaxis)
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("training step", fontsize=NORMAL)
    ax.set_ylabel("training loss", fontsize=NORMAL)
    legend_above(ax)


def _lines(
    runs: Mapping[str, Sequence[Sequence[float]]],
    order: Sequence[str] = (),
    linear: bool = False,
    thick: str = "",
) -> tuple[Figure, Axes]:
    """One panel with the curves of every name, and a legend above.

    Args:
        runs: The curves of every name.
        order: All names that have a colour, some of which may have no curve here.
        linear: Never take a logarithmic axis.
        thick: The name whose line is thick.
    """
    made, (ax,) = one_column(1, 1.9 + 0.13 * -(-len(runs) // 2))
    every = [value for curves in runs.values() for curve in curves for value in curve]
    log = not linear and min((v for v in every if math.isfinite(v)), default=0.0) > 0
    first = [c[0] for curves in runs.values() for c in curves if c and math.isfinite(c[0])]
    ceiling = CEILING * min(first) if log and first else math.inf
    for k, name in enumerate(order or runs):
        if name not in runs:
            continue  # it keeps its colour and kind of line for the other figures
        color, width = METHODS[k % len(METHODS)], 2.0 if name == thick else 1.0
        dash = DASHES[k % len(DASHES)]
        _draw_curves(ax, runs[name], ceiling, name, color, width, linestyle=dash)
    if log:
        log_axis(ax.yaxis)
    ax.locator_params(axis="x", integer=True)
    legend_above(ax, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), handlelength=2.6)
    return made, ax


def _draw_curves(
    ax: Axes,
    curves: Sequence[Sequence[float]],
    ceiling: float,
    label: str,
    color: str,
    linewidth: float = 1.0,
    alpha: float = 1.0,
    linestyle: object = "-",
) -> None:
    """One line for each curve; values above the ceiling are drawn at it."""
    for i, curve in enumerate(curves):
        finite = [min(value, ceiling) for value in curve if math.isfinite(value)]
        own = label if i == 0 else None
        ax.plot(finite, label=own, color=color, lw=linewidth, alpha=alpha, ls=linestyle)
        if finite and len(finite) < len(curve):
            ax.plot(len(finite) - 1, finite[-1], marker="x", color=color, ms=6)
        elif curve and not finite:  # draw the cross at the upper edge
            edge = ax.get_xaxis_transform()
            ax.plot(0, 1, marker="x", color=color, ms=6, transform=edge, clip_on=False)
