"""What our defaults gain on networks that their numbers were not chosen on.

    python -m benchmarks.trainability --suite letters --data TEXT --methods "as it is" LSUV
    python -m benchmarks.comparisons.unseen letters   # the tables for docs/evidence/trainability.md

Every method is compared with the start and with LSUV on the cells that all of them have. Intervals
are 95% by bootstrap over networks; p is that of the sign test over networks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.comparisons.gains import Rows, found
from benchmarks.statistics_tools import Compared, compared, halves
from benchmarks.trainability.standings import BEFORE, Cell
from benchmarks.trainability.suites import SUITES

OURS = {
    "nio_ for the optimizer": "`nio_(..., optimizer=)`, first form",
    "nio_ of 2026-11-18": "`nio_(..., optimizer=)`, second form",
    "nio_ with branches": "`nio_(..., optimizer=)`",
    "auto_ of 2026-11-18": "`auto_`",
}
OTHERS = ("warmup of one epoch", "LSUV", "GradInit", "MetaInit", "NIO, paper's form")
SHOWN = {BEFORE: BEFORE, **{m: m for m in OTHERS}, **OURS}
LOWER = 0.05  # a share of the test images


def tables(name: str = "fresh") -> str:
    """Markdown: a line a method; then our functions against the start and against LSUV."""
    suite = SUITES[name]
    networks = list(suite.networks)
    unseen = halves(networks)[1] if name == "digits" else networks  # the others decided numbers
    rows = {
        method: {
            cell: {**row, "trains": row["accuracy"] >= suite.good}
            for cell, row in own.items()
            if cell[0] in unseen
        }
        for method, own in found(suite).items()
    }
    return f"{_counts(rows, list(suite.optimizers))}\n\n{_differences(rows)}"


def _counts(rows: dict[str, Rows], optimizers: list[str]) -> str:
    """Cells that train, by optimizer, and what became of those that train as they are."""
    lines = [
        f"| method | cells | train | {' | '.join(optimizers)} | rescued | made worse "
        "| over 5 points lower |",
        "|---" * (len(optimizers) + 6) + "|",
    ]
    before = rows[BEFORE]
    for method, name in SHOWN.items():
        mine = rows.get(method, {})
        cells = [c for c in mine if c in before]
        if not cells:
            continue
        kept = [c for c in cells if _trains(before[c])]
        parts = [_part(mine, [c for c in cells if c[2] == o]) for o in optimizers]
        rescued = sum(_trains(mine[c]) > _trains(before[c]) for c in cells)
        worse = sum(not _trains(mine[c]) for c in kept)
        lower = sum(mine[c]["accuracy"] < before[c]["accuracy"] - LOWER for c in kept)
        lines.append(
            f"| {name} | {len(cells)} | {_part(mine, cells)} | {' | '.join(parts)} | {rescued} | "
            f"{worse} of {len(kept)} | {lower} |"
        )
    return "\n".join(lines)


def _differences(rows: dict[str, Rows]) -> str:
    """Points, intervals, cells won and lost, and the share of what any method trains."""
    lines = [
        "| method | cells | to the start, points | to LSUV, points | accuracy of what trains as it "
        "is, points | of what any method trains |",
        "|---|---|---|---|---|---|",
    ]
    for method, name in OURS.items():
        mine = rows.get(method, {})
        shared = [c for c in mine if all(c in rows.get(m, {}) for m in (BEFORE, "LSUV"))]
        if not shared:
            continue
        kept = [c for c in shared if _trains(rows[BEFORE][c])]
        anyone = [c for c in shared if any(_trains(r[c]) for r in rows.values() if c in r)]
        share = sum(_trains(mine[c]) for c in anyone) / len(anyone)
        lines.append(
            f"| {name} | {len(shared)} | {_text(_against(mine, rows[BEFORE], shared))} | "
            f"{_text(_against(mine, rows['LSUV'], shared))} | "
            f"{_text(_against(mine, rows[BEFORE], kept, lambda r: r['accuracy']))} | "
            f"{share:.1%} of {len(anyone)} |"
        )
    return "\n".join(lines)


def _against(
    mine: Rows, theirs: Rows, cells: list[Cell], value: Callable[..., float] | None = None
) -> Compared:
    of = value or (lambda row: float(_trains(row)))
    return compared({c: 100 * of(mine[c]) for c in cells}, {c: 100 * of(theirs[c]) for c in cells})


def _text(c: Compared) -> str:
    return f"{c.mean:+.1f} ({c.low:+.1f} to {c.high:+.1f}), {c.better}:{c.worse}, p = {c.p:.2g}"


def _part(mine: Rows, cells: list[Cell]) -> str:
    return f"{sum(_trains(mine[c]) for c in cells)} of {len(cells)}"


def _trains(row: dict[str, object]) -> bool:
    return bool(row["trains"])


if __name__ == "__main__":
    print(tables(*sys.argv[1:]))
