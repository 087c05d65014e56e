"""The tables of :mod:`benchmarks.cosine.run`: every arm against the norm alone, paired by cell."""

from __future__ import annotations

from typing import Any

from benchmarks.comparisons.gains import difference
from benchmarks.cosine.run import ARMS, STARTED
from benchmarks.statistics_tools import Interval
from benchmarks.trainability.run import STARTS
from benchmarks.trainability.run import read as read_suite
from benchmarks.trainability.standings import by_cell
from benchmarks.trainability.suites import SUITES

ALONE = "norm alone (cosine left)"
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
Cell = tuple[str, str, str]  # network, start, optimizer
Found = dict[str, dict[Cell, dict[str, Any]]]


def recorded() -> Found:
    """Arm -> cell -> row, of seed 0 of the digits suite."""
    rows = [row for row in read_suite(SUITES["digits"].results) if row["seed"] == 0]
    found = by_cell(rows, list(STARTS))
    return {
        arm: {cell[:3]: row for cell, row in found[name].items()} for arm, name in RECORDED.items()
    }


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: the arms with records of all starts, then all arms on the cells they share."""
    known = recorded()
    new: Found = {arm: {} for arm in ARMS}
    for row in rows:
        new[row["arm"]][row["network"], row["start"], row["optimizer"]] = row
    parts = [_table(known)]
    whole = {arm: cells for arm, cells in new.items() if cells}
    if whole:
        some = {
            a: {c: r for c, r in cells.items() if c[1] in STARTED} for a, cells in known.items()
        }
        parts.append(_table({**some, **whole}))
    return "\n\n".join(filter(None, parts))


def _from(starts: tuple[str, ...], cells: dict[Cell, Any]) -> dict[Cell, Any]:
    return {cell: row for cell, row in cells.items() if cell[1] in starts}


def _table(found: Found) -> str:
    """A line an arm, of the networks of which all arms have all cells."""
    shared = [cell for cell in found[ALONE] if all(cell in mine for mine in found.values())]
    wanted = {n: sum(c[0] == n for c in found[ALONE]) for n, *_ in found[ALONE]}
    shared = [c for c in shared if sum(other[0] == c[0] for other in shared) == wanted[c[0]]]
    if not shared:  # an interrupted run has no whole network yet
        return ""
    networks = len({cell[0] for cell in shared})
    lines = [
        f"| arm, {len(shared)} cells of {networks} networks | trains "
        "| difference from the norm alone, points | mean training loss | difference |",
        "|---|---|---|---|---|",
    ]
    for arm, mine in found.items():
        share = sum(_trains(mine[c]) for c in shared) / len(shared)
        loss = sum(mine[c]["area"] for c in shared) / len(shared)
        trains = difference(mine, found[ALONE], shared, lambda row: 100.0 * _trains(row))
        losses = difference(mine, found[ALONE], shared, lambda row: row["area"])
        texts = ["", ""] if arm == ALONE else [_bold(trains, 1), _bold(losses, 2)]
        lines.append(f"| {arm} | {share:.0%} | {texts[0]} | {loss:.2f} | {texts[1]} |")
    return "\n".join(lines)


def _trains(row: dict[str, Any]) -> bool:
    return bool(row["accuracy"] >= SUITES["digits"].good)


def _bold(found: Interval, digits: int) -> str:
    return f"**{found.text(digits)}**" if found.certain else found.text(digits)
