"""Scores of the trainability suite: a table of the methods, one of the networks, a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.trainability.contenders import METHODS

BEFORE = "as it is"

Cell = tuple[str, str, str, int]  # network, start, optimizer, seed
Found = dict[str, dict[Cell, dict[str, Any]]]


def by_cell(rows: list[dict[str, Any]], starts: list[str]) -> Found:
    """Method -> cell -> row; a method that draws afresh has one row for all starts."""
    found: Found = defaultdict(dict)
    for row in rows:
        for start in starts if METHODS[row["method"]].fresh else [row["start"]]:
            cell = (row["network"], start, row["optimizer"], row["seed"])
            found[row["method"]][cell] = row
    return found


def score(
    mine: dict[Cell, dict[str, Any]], before: dict[Cell, dict[str, Any]], good: float
) -> dict[str, Any]:
    """What the table tells of a method, against the starts that it was given.

    A cell trains if its test accuracy is at least ``good``.
    """
    trains = _training(good)
    cells = [cell for cell in mine if cell in before]
    seconds = sorted(row["seconds"] for row in mine.values() if "seconds" in row)
    return {
        "cells": len(cells),
        "trains": sum(trains(mine[c]) for c in cells),
        "rescued": sum(trains(mine[c]) and not trains(before[c]) for c in cells),
        "worse": sum(trains(before[c]) and not trains(mine[c]) for c in cells),
        "area": sum(mine[c]["area"] for c in cells) / max(1, len(cells)),
        "refused": sum("error" in row for row in mine.values()),
        "seconds": seconds[len(seconds) // 2] if seconds else 0.0,
    }


def _training(good: float) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(row["accuracy"] >= good)


def complete(rows: list[dict[str, Any]], wanted: list[Any]) -> list[str]:
    """The methods of which nothing is missing."""
    seen = {(r["method"], r["network"], r["start"], r["seed"]) for r in rows}
    return [m for m in METHODS if (jobs := {j for j in wanted if j[0] == m}) and jobs <= seen]


def tables(rows: list[dict[str, Any]], starts: list[str], wanted: list[Any], good: float) -> str:
    """Markdown: a line a method and a line a network; then the same for other forms of NIO."""
    found, shown = by_cell(rows, starts), complete(rows, wanted)
    whole = [m for m in shown if METHODS[m].seeds > 1]
    changed = [m for m in shown if METHODS[m].seeds == 1]
    parts = _both(found, whole, good)
    if changed:
        parts += _both(found, [m for m in shown if m in (BEFORE, "NIO()", *changed)], good)
    return "\n\n".join(parts)


def _both(found: Found, methods: list[str], good: float) -> list[str]:
    """Of the cells that all of these methods have: a line a method, and a line a network."""
    shared = [c for c in found[BEFORE] if all(c in found[m] for m in methods)]
    same = {m: {c: found[m][c] for c in shared} for m in methods}
    return [_by_method(same, good), _by_anyone(same, good), _by_network(same, good)]


def _by_method(found: Found, good: float) -> str:
    lines = [
        "| method | cells that train | rescued | made worse | area under the loss | refused | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, mine in found.items():
        s = score(mine, found[BEFORE], good)
        failing = sum(row["accuracy"] < good for row in found[BEFORE].values())
        lines.append(
            f"| {method} | {s['trains']} of {s['cells']} ({s['trains'] / s['cells']:.0%}) | "
            f"{s['rescued']} of {failing} | {s['worse']} | {s['area']:.2f} | {s['refused']} | "
            f"{s['seconds']:.1f} |"
        )
    return "\n".join(lines)


def _by_anyone(found: Found, good: float) -> str:
    trains = _training(good)
    anyone = {cell for mine in found.values() for cell, row in mine.items() if trains(row)}
    cells = len(found[BEFORE])
    return f"{len(anyone)} of {cells} cells train from at least one of these rows."


def _by_network(found: Found, good: float) -> str:
    trains = _training(good)
    lines = ["| network | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for network in dict.fromkeys(cell[0] for cell in found[BEFORE]):
        cells = [c for c in found[BEFORE] if c[0] == network]
        counts = [sum(trains(mine[c]) for c in cells) for mine in found.values()]
        lines.append(f"| {network} ({len(cells)}) | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def figure(
    rows: list[dict[str, Any]], starts: list[str], wanted: list[Any], path: Path, good: float
) -> None:
    """Share of cells that train: a panel a start, a bar a method."""
    from neuroinit import plots
    from neuroinit.common.files import replacing

    trains, found = _training(good), by_cell(rows, starts)
    methods = [m for m in complete(rows, wanted) if METHODS[m].seeds > 1]
    panels = [("all starts", None), *((f"from {start}", start) for start in starts)]
    made, axes = plots.figure(len(panels), width=1.9, height=0.22 * len(methods) + 0.5)
    for ax, (title, start) in zip(axes[0], panels, strict=True):
        for place, method in enumerate(methods):
            mine = [r for cell, r in found[method].items() if start in (None, cell[1])]
            share = sum(map(trains, mine)) / max(1, len(mine))
            color = plots.AFTER if method in ("NIO()", "auto_") else plots.BEFORE
            ax.barh(-place, 100 * share, color=color, height=0.7)
            ax.text(100 * share + 2, -place, f"{100 * share:.0f}", va="center", fontsize=7)
        ax.set_xlim(0, 112)
        ax.set_title(title, fontsize=9)
        ax.set_yticks([-k for k in range(len(methods))], methods if ax is axes[0, 0] else [])
        ax.tick_params(labelsize=8)
        ax.grid(visible=False)
    axes[0, 0].set_xlabel("cells that train, %", fontsize=8)
    with replacing(path) as temporary:
        made.savefig(temporary, format="png")
