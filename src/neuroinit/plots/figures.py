"""Records -> figures, sized for a paper's column; needs ``pip install "neuroinit[plots]"``."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from neuroinit.choose.auto_result import AutoResult
from neuroinit.common.errors import needs_extra
from neuroinit.gradients.statistics import GradientStats
from neuroinit.run.result import Result, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEFORE, AFTER = "#b3452c", "#1f6f8b"  # readable in print and to colour-blind eyes
COLUMN = 3.25  # inches: one column of a two-column paper
SMALL, NORMAL = 7, 8  # points, at the width of a column


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


def _column(rows: int = 1, height: float = 1.5) -> tuple[Any, list[Axes]]:
    """Axes below each other, one column wide."""
    made, axes = figure(1, rows, COLUMN, height)
    for ax in axes.flat:
        ax.tick_params(labelsize=SMALL, which="both")
    return made, list(axes.flat)


# -- figures ---------------------------------------------------------------------------------------


def history(result: Result | Sequence[StepRecord]) -> Figure:
    """GradCosine, norm and loss over the steps; steps that began above the bound are shaded.

    Args:
        result: A result, or its ``history``.

    Example:
        >>> records = [StepRecord(i, 2.0, 0.3, 1.0, 1.2, 0.8, i < 2, 0.1) for i in range(5)]
        >>> len(history(records).axes)
        3
    """
    records = result.history if isinstance(result, Result) else list(result)
    if not records:
        raise ValueError("Parameter `result` holds no step: there is nothing to draw.")
    gamma = result.settings.get("gamma") if isinstance(result, Result) else None
    made, axes = _column(3, 1.15)
    steps = [record.step for record in records]
    labels = {"cosine": "GradCosine", "norm": "gradient norm", "loss": "loss"}
    for ax, (name, label) in zip(axes, labels.items(), strict=True):
        values = [record[name] for record in records]
        ax.plot(steps, values, color=AFTER, linewidth=1.2)
        ax.set_ylabel(label, fontsize=NORMAL)
        _shade(ax, records)
        known = [value for value in values if math.isfinite(value)]
        if known and min(known) > 0 and (name == "norm" or max(known) > 100 * min(known)):
            ax.set_yscale("log")
        ax.sharex(axes[0])
        ax.locator_params(axis="x", integer=True)
    if isinstance(gamma, (int, float)):
        axes[1].axhline(gamma, color=BEFORE, linewidth=0.8, linestyle="--", label="bound")
        axes[1].legend(fontsize=SMALL, frameon=False, handlelength=1.5)
    for ax in axes[:-1]:
        ax.tick_params(labelbottom=False)
    axes[-1].set_xlabel("step", fontsize=NORMAL)
    made.align_ylabels()
    return made  # type: ignore[no-any-return]


def _shade(ax: Axes, records: Sequence[StepRecord]) -> None:
    for constrained, group in itertools.groupby(records, key=lambda record: record.constrained):
        steps = [record.step for record in group]
        if constrained:
            ax.axvspan(steps[0] - 0.5, steps[-1] + 0.5, color=BEFORE, alpha=0.12, lw=0)


def layers(before: GradientStats | Result, after: GradientStats | None = None) -> Figure:
    """Norm, ratio and cosine of every weight tensor's gradient, before and after (Fig. 3).

    Args:
        before: Statistics, or a result with both.
        after: Statistics to compare with.
    """
    if isinstance(before, Result):
        before, after = _ends(before)
    made, axes = _column(3, 1.25)
    labels = {"norm": "norm", "norm_ratio": "max / min norm", "cosine": "GradCosine"}
    for ax, (quantity, label) in zip(axes, labels.items(), strict=True):
        _draw_sides(ax, before, after, quantity)
        ax.set_ylabel(label, fontsize=NORMAL)
        ax.sharex(axes[0])
    for ax in axes[:-1]:
        ax.tick_params(labelbottom=False)
    if after is not None:
        _legend_above(axes[0])
    axes[-1].set_xlabel("weight tensor, first to last", fontsize=NORMAL)
    axes[-1].locator_params(axis="x", integer=True)
    made.align_ylabels()
    return made  # type: ignore[no-any-return]


def batches(before: GradientStats | Result, after: GradientStats | None = None) -> Figure:
    """The norm of every sub-batch's gradient, and how each pair of them agrees.

    Args:
        before: Statistics, or a result with both.
        after: Statistics to compare with.
    """
    if isinstance(before, Result):
        before, after = _ends(before)
    made, axes = _column(2, 1.5)
    for stats, color, label in _sides(before, after):
        norms = sorted(stats.norms.tolist())
        axes[0].plot(range(1, len(norms) + 1), norms, color=color, label=label, lw=1, marker=".")
        pairs = [
            float(stats.cosines[i, j]) for i in range(len(norms)) for j in range(i + 1, len(norms))
        ]
        axes[1].hist(pairs, bins=20, range=(min(-0.05, *pairs), 1.0), color=color, alpha=0.6)
    axes[0].set_yscale("log")
    axes[0].locator_params(axis="x", integer=True)
    axes[0].set_xlabel("sub-batch, smallest norm first", fontsize=NORMAL)
    axes[0].set_ylabel("gradient norm", fontsize=NORMAL)
    axes[1].set_xlabel("cosine of two sub-batches' gradients", fontsize=NORMAL)
    axes[1].set_ylabel("pairs", fontsize=NORMAL)
    if after is not None:
        _legend_above(axes[0])
    return made  # type: ignore[no-any-return]


def scales(result: Result) -> Figure:
    """All scales, smallest first, on a logarithmic axis; the extremes are named."""
    ordered = sorted((s, n) for n, s in result.scales.items() if s > 0)
    if not ordered:
        raise ValueError("Parameter `result` holds no scale above 0: there is nothing to draw.")
    made, (ax,) = _column(1, 2.0)
    values = [scale for scale, _ in ordered]
    colors = [BEFORE if value < 1 else AFTER for value in values]
    ax.vlines(range(len(values)), [1.0] * len(values), values, colors=colors, linewidth=1)
    ax.scatter(range(len(values)), values, c=colors, s=5, zorder=3)
    ax.set_yscale("log")
    ax.axhline(1.0, color="0.5", linewidth=0.6)
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("tensor, smallest scale first", fontsize=NORMAL)
    ax.set_ylabel("scale", fontsize=NORMAL)
    (low, low_name), (high, high_name) = ordered[0], ordered[-1]
    text = f"smallest: {low_name} ({low:.3g})\nlargest: {high_name} ({high:.3g})"
    ax.set_title(text, fontsize=SMALL, loc="left")
    return made  # type: ignore[no-any-return]


def rollouts(result: AutoResult) -> Figure:
    """The training loss of every candidate of :func:`neuroinit.auto_`; the winner is drawn thick.

    Args:
        result: What ``auto_`` returned.
    """
    made, (ax,) = _column(1, 2.2)
    trained = [record for record in result.candidates if record.losses]
    finite = [value for record in trained for value in record.losses if math.isfinite(value)]
    first = [record.losses[0] for record in trained if math.isfinite(record.losses[0])]
    positive = bool(finite) and min(finite) > 0
    # an explosion leaves at the top
    highest = 10 * min(first) if first and positive else max(finite, default=1.0)
    for record in trained:
        shown = [min(value, highest) for value in record.losses if math.isfinite(value)]
        wins = record.name == result.winner
        (line,) = ax.plot(shown, linewidth=1.8 if wins else 0.8, label=record.name)
        if len(shown) < len(record.losses):  # it diverged there
            ax.plot(len(shown), highest, "x", color=line.get_color(), clip_on=False)
    if positive:
        ax.set_yscale("log")
    ax.set_xlabel("training step", fontsize=NORMAL)
    ax.set_ylabel("loss", fontsize=NORMAL)
    ax.legend(
        fontsize=SMALL - 1, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1)
    )
    return made  # type: ignore[no-any-return]


def compare(records: Iterable[Any], column: str = "norm") -> Figure:
    """One row a method: every seed a dot, their mean a bar with the standard deviation.

    Args:
        records: Anything with ``record["method"]`` and ``record[column]``, one a method and seed,
            as ``ni.compare`` returns.
        column: Which number to draw.

    Example:
        >>> rows = [{"method": m, "seed": s, "norm": 1.0 + s} for m in "ab" for s in range(3)]
        >>> [label.get_text() for label in compare(rows, "norm").axes[0].get_yticklabels()]
        ['a', 'b']
    """
    groups = _groups(records, column)
    made, (ax,) = _column(1, 0.7 + 0.28 * len(groups))
    for row, values in enumerate(groups.values()):
        finite = [value for value in values if math.isfinite(value)]
        lost = len(values) - len(finite)
        if lost:
            note = f" {lost} of {len(values)} not finite"
            ax.annotate(
                note,
                (1.0, row),
                xycoords=("axes fraction", "data"),
                fontsize=SMALL,
                va="center",
                ha="right",
            )
        if not finite:
            continue
        spread = statistics.stdev(finite) if len(finite) > 1 else 0.0
        ax.scatter(finite, [row] * len(finite), s=9, color=AFTER, alpha=0.5, linewidths=0)
        ax.errorbar(
            statistics.fmean(finite), row, xerr=spread, color=AFTER, marker="|", ms=9, lw=1.2
        )
    drawn = [v for values in groups.values() for v in values if math.isfinite(v)]
    if drawn and min(drawn) > 0 and max(drawn) > 100 * min(drawn):
        ax.set_xscale("log")
    ax.set_yticks(range(len(groups)), list(groups), fontsize=SMALL)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.set_xlabel(column.replace("_", " "), fontsize=NORMAL)
    return made  # type: ignore[no-any-return]


def _groups(records: Iterable[Any], column: str) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for record in records:
        try:
            value = record[column]
        except KeyError:
            keys = ", ".join(f"`{key}`" for key in record.keys())  # noqa: SIM118
            raise ValueError(
                f"Parameter `column` should be a field of the records. Found `column = {column!r}`;"
                f" the fields are: {keys}."
            ) from None
        if isinstance(value, str) or (value is not None and not hasattr(value, "__float__")):
            raise ValueError(f"`column = {column!r}` holds no numbers: found `{value!r}`.")
        number = float("nan") if value is None else float(value)
        groups.setdefault(str(record["method"]), []).append(number)
    if not groups:
        raise ValueError("Parameter `records` is empty: there is nothing to draw.")
    return groups


# -- parts of figures ------------------------------------------------------------------------------


def draw_layers(ax: Axes, before: GradientStats, after: GradientStats, quantity: str) -> None:
    """One quantity of every tensor but biases, first to last, on given axes."""
    _draw_sides(ax, before, after, quantity)
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("weight tensor, first to last", fontsize=8)
    ax.set_title(f"gradient {quantity} of every weight tensor", fontsize=9)
    ax.legend(fontsize=8, frameon=False)


def draw_losses(ax: Axes, curves: Sequence[Sequence[float]], color: str, label: str) -> None:
    """Training losses of several seeds in one colour; a cross where a loss is not finite.

    A run whose first loss already is not has its cross at step 0, on the upper edge.
    """
    for i, curve in enumerate(curves):
        finite = [value for value in curve if math.isfinite(value)]
        ax.plot(finite, color=color, linewidth=1, alpha=0.8, label=label if i == 0 else None)
        if finite and len(finite) < len(curve):
            ax.plot(len(finite) - 1, finite[-1], marker="x", color=color, ms=6)
        elif curve and not finite:
            edge = ax.get_xaxis_transform()
            ax.plot(0, 1, marker="x", color=color, ms=6, transform=edge, clip_on=False)
    ax.set_yscale("log")
    ax.set_xlabel("step", fontsize=8)
    ax.legend(fontsize=8, frameon=False)


def _draw_sides(
    ax: Axes, before: GradientStats, after: GradientStats | None, quantity: str
) -> None:
    for stats, color, label in _sides(before, after):
        values = [layer[quantity] for layer in stats.layers if not layer.name.endswith("bias")]
        ax.plot(range(len(values)), values, color=color, label=label, linewidth=1, marker=".", ms=3)
    if quantity != "cosine":
        ax.set_yscale("log")


def _sides(
    before: GradientStats, after: GradientStats | None
) -> list[tuple[GradientStats, str, str]]:
    sides = [(before, BEFORE, "before"), (after, AFTER, "after")]
    return [(stats, color, label) for stats, color, label in sides if stats is not None]


def _ends(result: Result) -> tuple[GradientStats, GradientStats | None]:
    """What a result knows of its two ends; a start that was not finite is left out."""
    if result.before is None or result.after is None:
        raise ValueError(
            "Before or after is missing from this result: its gradients were not finite, or the "
            "run did not finish. Draw one side with `layers(result.after)`."
        )
    return result.before, result.after


def _legend_above(ax: Axes) -> None:
    ax.legend(
        fontsize=SMALL,
        frameon=False,
        ncols=2,
        loc="lower right",
        bbox_to_anchor=(1.0, 0.98),
        borderaxespad=0.0,
    )
