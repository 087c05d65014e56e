"""Time, memory and operators of a step against D, B, depth and the number of parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

COLOURS = {"keep": "#0072b2", "stream": "#009e73", "authors' way": "#d55e00"}

VALUES = [
    ("training_steps", "training steps a step"),
    ("extra_mb", "extra memory, MB"),
    ("operators", "operators, in those of a training step"),
]


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Rows for time, memory and operators of panels for D, B, parameters and depth.

    Only those where there is a line to draw.
    """
    main = max({r["model"] for r in rows}, key=lambda m: sum(r["model"] == m for r in rows))
    most = max(
        {r["B"] for r in rows if r["model"] == main},
        key=lambda b: sum(r["B"] == b for r in rows if r["model"] == main),
    )
    family = main.split(",")[0]
    at = [r for r in rows if r["way"] in COLOURS]
    on_main = [r for r in at if r["model"] == main]
    split = [r for r in at if (r["D"], r["r"]) == (4, 0.2)]
    panels = {
        "D": [r for r in on_main if r["B"] == most and (r["D"], r["r"]) in _shown(on_main)],
        "B": [r for r in split if r["model"] == main],
        "parameters": [r for r in split if r["B"] == most and r["model"].startswith(family)],
        "blocks": [
            {**r, "blocks": int(depth)}
            for r in split
            if r["B"] == most and (depth := r["model"].removeprefix("residual-")).isdigit()
        ],
    }
    names = {
        "D": f"sub-batches D ({main}, B={most})",
        "B": "batch size B (D=4, r=0.2)",
        "parameters": f"parameters ({family}, D=4, r=0.2)",
        "blocks": "residual blocks (D=4, r=0.2)",
    }
    panels = {key: found for key, found in panels.items() if len({r[key] for r in found}) > 1}
    if not panels:
        return
    counted = any(r.get("operators") for found in panels.values() for r in found)
    values = VALUES if counted else VALUES[:2]
    figure = Figure(figsize=(0.8 + 3.2 * len(panels), 2.8 * len(values)), layout="constrained")
    axes = figure.subplots(len(values), len(panels), squeeze=False)
    for column, (key, found) in enumerate(panels.items()):
        for line, (value, label) in enumerate(values):
            axis = axes[line][column]
            shown = [r for r in found if r.get(value) is not None]
            axis.set_visible(len({r[key] for r in shown}) > 1)
            _lines(axis, shown, key, value)
            axis.set(ylabel=label if column == 0 else "", xlabel=names[key])
    axes[0][0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def _shown(rows: list[dict[str, Any]]) -> set[tuple[int, float]]:
    """One overlap for every D: that of most ways."""
    splits = [(r["D"], r["r"]) for r in rows]
    return {max((s for s in splits if s[0] == d), key=splits.count) for d, _ in splits}


def _lines(axis: Any, rows: list[dict[str, Any]], key: str, value: str) -> None:
    for way, colour in COLOURS.items():
        points = sorted((r[key], r[value]) for r in rows if r["way"] == way)
        if points:
            axis.plot(*zip(*points, strict=True), "o-", color=colour, label=way)
    axis.set_xscale("log", base=2)
    ticks = sorted({r[key] for r in rows})
    axis.set_xticks(ticks, [str(t) if t < 10_000 else f"{t / 1000:.0f}k" for t in ticks])
    axis.minorticks_off()
    axis.set_ylim(0, 1.1 * max((r[value] for r in rows), default=1.0))
    axis.spines[["top", "right"]].set_visible(False)
