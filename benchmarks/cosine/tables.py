"""The tables of :mod:`benchmarks.cosine.run`: every arm against the norm alone, paired by cell."""

from __future__ import annotations

from typing import Any

from benchmarks.comparisons.gains import difference
from benchmarks.cosine.run import ALONE, ARMS
from benchmarks.statistics_tools import Interval
from benchmarks.trainability.run import STARTS
from benchmarks.trainability.run import read as read_suite
from benchmarks.trainability.standings import by_cell
from benchmarks.trainability.suites import SUITES

RECORDED = {  # the names of the arms in the suite's records
    "as it is": "as it is",
    ALONE: "NIO(), no ascent",
    "cosine raised": "NIO()",
    "cosine of every tensor raised": "NIO(), cosine of every tensor",
    "raised, random inputs and labels": "NIO() without data",
    "NIO.paper": "NIO.paper(steps=100)",
    "NIO.reference": "NIO.reference()",
    "auto_": "auto_",
}
Cell = tuple[str, str, str, int]  # network, start, optimizer, seed
Found = dict[str, dict[Cell, dict[str, Any]]]


def recorded() -> Found:
    """Arm -> cell -> row, of seed 0 of the digits suite, all starts."""
    rows = [row for row in read_suite(SUITES["digits"].results) if row["seed"] == 0]
    found = by_cell(rows, list(STARTS))
    return {arm: found[name] for arm, name in RECORDED.items()}


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: the arms of the suite's own records, then those of cosine.jsonl, a suite each."""
    parts = [_table(recorded(), "digits", "five starts")]
    for suite in ("digits", "other"):
        found: Found = {arm: {} for arm in ARMS}
        for row in rows:
            if row["suite"] == suite:
                cell = row["network"], row["start"], row["optimizer"], row["seed"]
                found[row["arm"]][cell] = row
        parts.append(_table(found, suite, "two starts"))
    return "\n\n".join(filter(None, parts))


def _table(found: Found, suite: str, starts: str) -> str:
    """A line an arm, of the networks and seeds of which all arms have all cells."""
    known = {cell for mine in found.values() for cell in mine}
    jobs = {(cell[0], cell[3]) for cell in known}
    whole = {
        job
        for job in jobs
        if all({c for c in known if (c[0], c[3]) == job} <= set(mine) for mine in found.values())
    }
    shared = [c for c in found[ALONE] if (c[0], c[3]) in whole]
    if not shared:  # an interrupted run has no whole network yet
        return ""
    networks, seeds = len({c[0] for c in shared}), len({c[3] for c in shared})
    lines = [
        f"| `{suite}`, {starts}: {len(shared)} cells of {networks} networks, "
        f"{seeds} seed{'s' * (seeds > 1)} | trains | difference from the norm alone, points "
        "| mean training loss | difference |",
        "|---|---|---|---|---|",
    ]

    def points(row: dict[str, Any]) -> float:
        return 100.0 * (row["accuracy"] >= SUITES[suite].good)

    for arm, mine in found.items():
        share = sum(points(mine[c]) for c in shared) / len(shared)
        loss = sum(mine[c]["area"] for c in shared) / len(shared)
        trains = difference(mine, found[ALONE], shared, points)
        losses = difference(mine, found[ALONE], shared, lambda row: row["area"])
        texts = ["", ""] if arm == ALONE else [_bold(trains, 1), _bold(losses, 2)]
        lines.append(f"| {arm} | {share:.0f}% | {texts[0]} | {loss:.2f} | {texts[1]} |")
    return "\n".join(lines)


def _bold(found: Interval, digits: int) -> str:
    return f"**{found.text(digits)}**" if found.certain else found.text(digits)
