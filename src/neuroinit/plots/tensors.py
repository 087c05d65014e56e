"""Figures with one mark for every parameter tensor, in the order of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.plots.groups import mark_groups
from neuroinit.plots.style import (
    AFTER,
    BEFORE,
    INK,
    NORMAL,
    SMALL,
    SOFT,
    drawable,
    legend_above,
    log_axis,
    one_column,
    shortened,
)
from neuroinit.run.results.result import Result
from neuroinit.run.results.tensor_table import tensor_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LABELS = {"norm": "norm", "norm_ratio": "max / min norm", "cosine": "GradCosine"}
TITLES = {
    "norm": "gradient norm",
    "norm_ratio": "largest / smallest gradient norm",
    "cosine": "GradCosine",
}


class MarkStyle(TypedDict, total=False):
    """How the values of one kind of tensor are drawn; keywords of ``Axes.plot``."""

    marker: str
    markersize: float
    linewidth: float
    linestyle: Literal[""]
    markerfacecolor: str
    markeredgewidth: float


NAMED = 24  # up to so many tensors, each has a line with its name
WEIGHT: MarkStyle = {"marker": "o", "markersize": 3.0, "linewidth": 0.8}
BIAS: MarkStyle = {
    "marker": "D",
    "markersize": 2.8,
    "linestyle": "",
    "markerfacecolor": "none",
    "markeredgewidth": 0.8,
}


def layers(before: GradientStats | Result, after: GradientStats | None = None) -> Figure:
    """Norm, norm ratio and cosine of every tensor's gradient, before and after (Fig. 3).

    Weights are filled circles, joined by a line; biases are open diamonds. Bands and the labels
    below show the layer groups.

    Args:
        before: Statistics, or a result with both.
        after: Statistics to compare with.

    Returns:
        A figure with three panels.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> len(ni.plots.layers(ni.gradient_stats(torch.nn.Linear(4, 3), batch)).axes)
        3
    """
    if isinstance(before, Result):
        before, after = both_sides(before)
    made, axes = one_column(3, 1.3)
    for ax, (quantity, label) in zip(axes, LABELS.items(), strict=True):
        _draw_sides(ax, before, after, quantity)
        ax.set_ylabel(label, fontsize=NORMAL)
        ax.sharex(axes[0])
        mark_groups(ax, [layer.name for layer in before.layers], labels=ax is axes[-1])
    legend_above(axes[0], _handles(after is not None))
    axes[-1].set_xlabel("tensors by layer group, first to last", fontsize=NORMAL)
    made.align_ylabels()
    return made


def scales(result: Result) -> Figure:
    """The scale of every tensor on a logarithmic axis; 1 leaves a tensor unchanged.

    Up to 24 tensors have a line each, with its name. More are drawn by layer group, and the
    title names the smallest and the largest. Weights are filled circles, biases open diamonds.

    Args:
        result: What ``optimize`` returned.

    Returns:
        A figure with one panel.

    Raises:
        ValueError: If no scale is above 0.

    Example:
        >>> result = Result({"0.weight": 2.0, "0.bias": 0.5}, [], None, None, {}, "keep", "done")
        >>> [label.get_text() for label in scales(result).axes[0].get_yticklabels()]
        ['0.weight', '0.bias']
    """
    known = {name: scale for name, scale in result.scales.items() if scale > 0}
    if not known:
        raise ValueError("Parameter `result` holds no scale above 0: there is nothing to draw.")
    if len(known) <= NAMED:
        return _named_scales(known)
    made, (ax,) = one_column(1, 2.3)
    names, values = list(known), list(known.values())
    _draw_kinds(ax, names, values, AFTER, joined=False)
    ax.axhline(1.0, color=SOFT, linewidth=0.8)
    log_axis(ax.yaxis)
    mark_groups(ax, names, labels=True)
    ax.set_ylabel("scale", fontsize=NORMAL)
    ax.set_xlabel("tensors by layer group, first to last", fontsize=NORMAL)
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    title = "\n".join(
        f"{word}: {shortened(name, 40)} ({known[name]:.3g})"
        for word, name in (("smallest", low), ("largest", high))
    )
    ax.set_title(title, fontsize=SMALL, loc="left", color=INK)
    return made


def _named_scales(known: dict[str, float]) -> Figure:
    """One line for each tensor, from 1 to its scale."""
    made, (ax,) = one_column(1, 0.6 + 0.16 * len(known))
    rows, values = list(range(len(known))), list(known.values())
    ax.hlines(rows, 1.0, values, colors=AFTER, linewidth=1.0, alpha=0.6)
    for row, (name, scale) in enumerate(known.items()):
        kind = WEIGHT if tensor_kind(name) == "weight" else BIAS
        style: MarkStyle = {**kind, "markersize": 4.0}
        ax.plot([scale], [row], color=AFTER, **style)
    ax.axvline(1.0, color=SOFT, linewidth=0.8)
    low, high = min(*values, 0.8), max(*values, 1.25)
    ax.set_xlim(low / 1.15, high * 1.15)
    log_axis(ax.xaxis)
    ax.set_yticks(rows, [shortened(name, 24) for name in known], fontsize=SMALL)
    ax.set_ylim(len(known) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("scale; 1 leaves a tensor unchanged", fontsize=NORMAL)
    return made


def draw_layers(ax: Axes, before: GradientStats, after: GradientStats, quantity: str) -> None:
    """One quantity of every tensor's gradient, before and after, on given axes.

    Args:
        ax: Where to draw.
        before: Statistics of the start.
        after: Statistics after the method.
        quantity: ``"norm"``, ``"norm_ratio"`` or ``"cosine"``.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> stats = ni.gradient_stats(torch.nn.Linear(4, 3), batch)
        >>> made, axes = ni.plots.figure(1)
        >>> ni.plots.draw_layers(axes[0, 0], stats, stats, "norm")
    """
    _draw_sides(ax, before, after, quantity)
    mark_groups(ax, [layer.name for layer in before.layers], labels=False)
    ax.set_xlabel("tensor, first to last", fontsize=NORMAL)
    ax.set_ylabel(f"{TITLES[quantity]} of every tensor", fontsize=NORMAL)
    legend_above(ax, _handles(both=True))


def both_sides(result: Result) -> tuple[GradientStats, GradientStats]:
    """The statistics before and after.

    Raises:
        ValueError: If one of them is missing.
    """
    if result.before is None or result.after is None:
        raise ValueError(
            "Before or after is missing from this result: there was no loss, its gradients were "
            "not finite, or the run did not finish. Draw one side, such as `result.before`, if "
            "there is one."
        )
    return result.before, result.after


def _draw_sides(
    ax: Axes, before: GradientStats, after: GradientStats | None, quantity: str
) -> None:
    log = quantity != "cosine"
    alone = after is None
    for stats, color in ((before, AFTER if alone else BEFORE), (after, AFTER)):
        if stats is not None:
            names = [layer.name for layer in stats.layers]
            values = drawable([layer[quantity] for layer in stats.layers], log)
            _draw_kinds(ax, names, values, color, joined=True)
    if log:
        log_axis(ax.yaxis)


def _draw_kinds(
    ax: Axes, names: Sequence[str], values: Sequence[float], color: str, joined: bool
) -> None:
    for kind, style in (("weight", WEIGHT), ("bias", BIAS)):
        places = [k for k, name in enumerate(names) if tensor_kind(name) == kind]
        given = style if joined else _unjoined(style)
        if places:
            ax.plot(places, [values[k] for k in places], color=color, **given)


def _unjoined(style: MarkStyle) -> MarkStyle:
    return {**style, "linestyle": ""}


def _handles(both: bool) -> list[Line2D]:
    """What the legend shows: a colour for each side, a mark for each kind of tensor."""
    from matplotlib.lines import Line2D

    sides = [("before", BEFORE), ("after", AFTER)] if both else []
    found = [Line2D([], [], color=color, label=label, linewidth=1.6) for label, color in sides]
    kinds = (("weight", WEIGHT), ("bias", BIAS))
    marks = [Line2D([], [], color=SOFT, label=label, **_unjoined(style)) for label, style in kinds]
    return [*found, *marks]
