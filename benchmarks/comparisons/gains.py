"""What a start gains over the one that it was given: by optimizer and seed, with intervals.

    python -m benchmarks.comparisons.gains            # tables of the records of `make trainability`

Differences are paired by cell (network, start, optimizer, seed). Networks are drawn again for the
intervals: cells of one network are not independent.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.statistics_tools import Interval, bootstrap, halves
from benchmarks.trainability.contenders import METHODS
from benchmarks.trainability.run import STARTS, read
from benchmarks.trainability.standings import BEFORE, Cell, by_cell
from benchmarks.trainability.suites import SUITES, Suite

PRESENT = ("common factor, optimizer", "common factor", "auto_ of 2026-11-17")
SHOWN = ("warmup of one epoch", "LSUV", "GradInit", "MetaInit", "NIO, paper's form", "NIO()")
EARLIER = (*SHOWN, "auto_")
Rows = dict[Cell, dict[str, Any]]


def found(suite: Suite) -> dict[str, Rows]:
    """Method -> cell -> row."""
    rows = [row for row in read(suite.results) if row["seed"] < suite.seeds]
    return by_cell([row for row in rows if row["method"] in METHODS], list(STARTS))


def earlier(suite: Suite) -> dict[str, Rows]:
    """The same, of the seeds that all earlier methods have."""
    rows = found(suite)
    seeds = set.intersection(*({cell[3] for cell in rows[method]} for method in EARLIER))
    return {m: {c: row for c, row in own.items() if c[3] in seeds} for m, own in rows.items()}


def difference(mine: Any, before: Any, cells: Sequence[Any], value: Any) -> Interval:
    """The mean difference of cells, whose first entry is the network; networks are drawn again."""
    networks: dict[str, list[float]] = {}
    for cell in cells:
        networks.setdefault(cell[0], []).append(value(mine[cell]) - value(before[cell]))
    sums = [(sum(own), float(len(own))) for own in networks.values()]
    return bootstrap(sums, lambda drawn: drawn[..., 0].sum(1) / drawn[..., 1].sum(1))


def table(name: str) -> str:
    """Markdown: share of cells that train, by optimizer and by seed; a line a method."""
    suite = SUITES[name]
    rows = earlier(suite)
    before = rows[BEFORE]
    groups: dict[str, list[Cell]] = {"all": list(before)}
    groups |= {o: [c for c in before if c[2] == o] for o in suite.optimizers}
    seeds = sorted({c[3] for c in before})
    if len(seeds) > 1:
        groups |= {f"seed {s}": [c for c in before if c[3] == s] for s in seeds}
    head = [f"{g} ({len(cells)} cells)" for g, cells in groups.items()]
    lines = [
        f"| more cells that train, points: `{name}` | " + " | ".join(head) + " |",
        "|---" * (len(groups) + 1) + "|",
    ]
    trains = _trains(suite)
    shares = [sum(map(trains, (before[c] for c in own))) / len(own) for own in groups.values()]
    lines.append("| as it is trains | " + " | ".join(f"{x:.0%}" for x in shares) + " |")
    for method in EARLIER:
        mine = rows[method]
        gains = [
            difference(mine, before, own, lambda row: 100.0 * trains(row))
            for own in groups.values()
        ]
        lines.append(f"| {method} | " + " | ".join(_bold(gain) for gain in gains) + " |")
    return "\n".join(lines)


def working(name: str) -> str:
    """Markdown: test accuracy of the cells that train as they are, and harm; a line a method."""
    suite = SUITES[name]
    rows, trains = earlier(suite), _trains(suite)
    before = rows[BEFORE]
    cells = [c for c in before if trains(before[c])]
    lines = [
        f"| `{name}`: {len(cells)} cells that train as they are | test accuracy, points "
        "| no longer train | cost, training steps |",
        "|---|---|---|---|",
    ]
    for method in EARLIER:
        mine = rows[method]
        gain = difference(mine, before, cells, lambda row: 100.0 * row["accuracy"])
        costs = [row["cost"] for row in mine.values() if "cost" in row]
        cost = f"{statistics.median(costs):.0f}" if costs else ""
        harmed = sum(not trains(mine[c]) for c in cells)
        lines.append(f"| {method} | {_bold(gain)} | {harmed} | {cost} |")
    return "\n".join(lines)


def thresholds(levels: tuple[float, ...] = (0.25, 0.30, 0.33)) -> str:
    """Markdown: cells of `other` that train, and harm, for other accuracies that count as such."""
    rows = earlier(SUITES["other"])
    before = rows[BEFORE]
    lines = [
        "| cells that train (made worse), if that means | "
        + " | ".join(f"{level:.0%}" for level in levels)
        + " |",
        "|---" * (len(levels) + 1) + "|",
    ]
    for method in (BEFORE, *EARLIER):
        line = []
        for level in levels:
            good = {c for c, row in rows[method].items() if row["accuracy"] >= level}
            lost = sum(row["accuracy"] >= level and c not in good for c, row in before.items())
            line.append(f"{len(good)} ({lost})")
        lines.append(f"| {method} | " + " | ".join(line) + " |")
    gaps = [
        difference(rows["NIO()"], rows["LSUV"], list(before), _points(level)) for level in levels
    ]
    return "\n".join([*lines, "| NIO() over LSUV, points | " + " | ".join(map(_bold, gaps)) + " |"])


def present(name: str = "digits") -> str:
    """Markdown: the present default on networks that nothing was chosen by; a line a form."""
    suite = SUITES[name]
    rows, trains = found(suite), _trains(suite)
    unseen = halves(list(suite.networks))[1]
    head = ["cells", "train", "as they are", "LSUV", "rescued", "made worse"]
    head += ["over the start, points", "over LSUV", "accuracy of those that train as they are"]
    lines = [f"| `{name}`, unseen half | " + " | ".join(head) + " |", "|---" * 10 + "|"]
    for method in (m for m in PRESENT if m in rows):
        cells = [c for c in rows[method] if c[0] in unseen and c in rows[BEFORE]]
        for optimizer in ("", *suite.optimizers):
            own = [c for c in cells if optimizer in ("", c[2])]
            line = _present(rows, method, own, trains)
            lines.append(f"| {method}{optimizer and ': ' + optimizer} | {line} |")
    return "\n".join(lines)


def _present(rows: dict[str, Rows], method: str, cells: list[Cell], trains: Any) -> str:
    mine, before, lsuv = (rows[m] for m in (method, BEFORE, "LSUV"))
    working = [c for c in cells if trains(before[c])]
    counts = [len(cells), *(sum(trains(r[c]) for c in cells) for r in (mine, before, lsuv))]
    counts += [sum(trains(mine[c]) and not trains(before[c]) for c in cells)]
    counts += [sum(not trains(mine[c]) for c in working)]
    gains = [difference(mine, r, cells, lambda x: 100.0 * trains(x)) for r in (before, lsuv)]
    gains.append(difference(mine, before, working, lambda x: 100.0 * x["accuracy"]))
    return " | ".join([*map(str, counts), *map(_bold, gains)])


def _points(level: float) -> Any:
    return lambda row: 100.0 * (row["accuracy"] >= level)


def tables() -> str:
    """All of them."""
    made = [make(name) for name in ("other", "digits") for make in (table, working)]
    return "\n\n".join([*made, thresholds(), present()])


def _trains(suite: Suite) -> Any:
    return lambda row: bool(row["accuracy"] >= suite.good)


def _bold(gain: Interval) -> str:
    return f"**{gain.text()}**" if gain.certain else gain.text()


if __name__ == "__main__":
    print(tables())
