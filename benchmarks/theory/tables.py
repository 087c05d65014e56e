"""Tables and the figure of :mod:`benchmarks.theory.run`, from its records."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.statistics_tools import spearman
from benchmarks.theory.run import FAMILIES, LOSSES, NETWORKS

PICTURE = Path(__file__).parents[2] / "docs" / "evidence" / "theory.png"
QUANTITIES = {
    "theta": "Theta of Eq. 2",
    "one_step": "Theta of Eq. 4",
    "cosine": "GradCosine",
    "norm": "gradient norm",
}
OUTCOMES = {"last": "training loss", "error": "test error"}
Row = dict[str, Any]


def tables(rows: list[Row]) -> str:
    """Markdown: the steps of the proof, the one-step form, and what predicts what."""
    parts = [_proof(rows), _one_step(rows), *(_prediction(rows, outcome) for outcome in OUTCOMES)]
    return "\n\n".join(parts)


def _of(rows: list[Row], **wanted: str) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _range(rows: list[Row], value: Callable[[Row], float]) -> str:
    """Median, smallest and largest."""
    found = [value(row) for row in rows]
    return f"{statistics.median(found):.3g} ({min(found):.3g} to {max(found):.3g})"


def _proof(rows: list[Row]) -> str:
    lines = [
        "| network, loss | starts | Eq. 10 holds | Eq. 11 holds | distance from the hull, from the "
        "start = 1 | loss at the joint optimum | its bound H Theta |",
        "|---" * 7 + "|",
    ]
    for network in NETWORKS:
        for loss in LOSSES:
            own = [r for r in _of(rows, network=network, loss=loss) if "bound" in r]
            eq10, eq11 = (statistics.mean(r[name] for r in own) for name in ("eq10", "eq11"))
            lines.append(
                f"| {network}, {loss} | {len(own)} | {eq10:.0%} | {eq11:.0%} | "
                f"{_range(own, lambda r: r['hull'] / r['moved'])} | "
                f"{_range(own, lambda r: r['joint_loss'])} | {_range(own, lambda r: r['bound'])} |"
            )
    return "\n".join(lines)


def _one_step(rows: list[Row]) -> str:
    lines = [
        "| network, loss, starts | Eq. 4 / Eq. 2 | their rank correlation | cosine of the paths "
        "| of the gradients | their rank correlation |",
        "|---" * 6 + "|",
    ]
    for network, loss, family, own in _groups(rows):
        pairs = [
            spearman([r[a] for r in own], [r[b] for r in own]).text(2)
            for a, b in (("theta", "one_step"), ("path_cosine", "cosine"))
        ]
        lines.append(
            f"| {network}, {loss}, {family} | {_range(own, lambda r: r['one_step'] / r['theta'])} "
            f"| {pairs[0]} | {_range(own, lambda r: r['path_cosine'])} "
            f"| {_range(own, lambda r: r['cosine'])} | {pairs[1]} |"
        )
    return "\n".join(lines)


def _groups(rows: list[Row]) -> list[tuple[str, str, str, list[Row]]]:
    return [
        (network, loss, family, _of(rows, network=network, loss=loss, family=family))
        for network in NETWORKS
        for loss in LOSSES
        for family in FAMILIES
    ]


def _prediction(rows: list[Row], outcome: str) -> str:
    lines = [
        f"| rank correlation with the {OUTCOMES[outcome]} | " + " | ".join(QUANTITIES.values()),
        "|---" * (len(QUANTITIES) + 1) + "|",
    ]
    lines[0] += " |"
    for network, loss, family, own in _groups(rows):
        found = [spearman([r[name] for r in own], [r[outcome] for r in own]) for name in QUANTITIES]
        cells = [f"**{f.text(2)}**" if f.certain else f.text(2) for f in found]
        lines.append(f"| {network}, {loss}, {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(rows: list[Row], path: Path = PICTURE) -> None:
    """Cross-entropy: Eq. 4 over Eq. 2, the loss and its bound, GradCosine and the test error."""
    from neuroinit import plots
    from neuroinit.common.files import replacing

    drawn, axes = plots.figure(3, len(NETWORKS), width=2.9, height=2.5)
    colors = dict(zip(FAMILIES, (plots.BEFORE, plots.AFTER), strict=True))
    for line, network in zip(axes, NETWORKS, strict=True):
        for family in FAMILIES:
            own = _of(rows, network=network, loss="cross-entropy", family=family)
            proved = [r for r in own if "bound" in r]
            for ax, xs, ys in (
                (line[0], [r["theta"] for r in own], [r["one_step"] for r in own]),
                (line[1], [r["bound"] for r in proved], [r["joint_loss"] for r in proved]),
                (line[2], [r["cosine"] for r in own], [100 * r["error"] for r in own]),
            ):
                ax.plot(xs, ys, ".", color=colors[family], label=family, markersize=5)
        for ax, x, y in (
            (line[0], "Theta from sample optima (Eq. 2)", "from one step (Eq. 4)"),
            (line[1], "bound H Theta", "loss at the joint optimum"),
            (line[2], "GradCosine at the start", "test error, %"),
        ):
            ax.set_xlabel(x, fontsize=8)
            ax.set_ylabel(y, fontsize=8)
        line[0].set_yscale("log")
        line[1].set_xscale("log")
        line[1].set_yscale("log")
        line[1].plot([1e-5, 1e6], [1e-5, 1e6], color="gray", linewidth=1)  # loss = bound
        line[0].set_title(network, fontsize=9)
        line[0].legend(fontsize=7, frameon=False)
    with replacing(path) as temporary:
        drawn.savefig(temporary, format="png")
