"""What our defaults gain on networks that their numbers were not chosen on.

    python -m benchmarks.trainability --suite letters --data TEXT --methods "as it is" LSUV
    python -m benchmarks.comparisons.unseen           # the table of all suites
    python -m benchmarks.comparisons.unseen letters   # the tables of one

Every method is compared with the start and with LSUV on the cells that all of them have. Intervals
are 95% by bootstrap over networks; p is that of the sign test over networks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.comparisons.gains import Rows, found
from benchmarks.statistics_tools import Compared, compared, halves
from benchmarks.trainability.run import STARTS
from benchmarks.trainability.standings import BEFORE, Cell
from benchmarks.trainability.suites import SUITES
from neuroinit.run.candidates import BOTH, BRANCHES, HALF, LAYERS, SMALLER_BRANCHES, WHOLE

OURS = {
    "nio_ for the optimizer": "`nio_(..., optimizer=)`, first form",
    "nio_ of 2026-11-18": "`nio_(..., optimizer=)`, second form",
    "nio_ with branches": "`nio_(..., optimizer=)`, third form",
    "nio_ by what is learned": "`nio_(..., optimizer=)`, fourth form",
    "nio_ with layers and branches": "`nio_(..., optimizer=)`, fifth form",
    "nio_ with bounded learning": "`nio_(..., optimizer=)`, sixth form",
    "nio_ by a clear lead": "`nio_(..., optimizer=)`",
    "auto_ of 2026-11-18": "`auto_`, earlier form",
    "auto_ by what is learned": "`auto_`, second form",
    "auto_ without a higher rate": "`auto_`",
}
SHOWN_SUITES = ("distortions", "strokes", "other", "digits")
UNSEEN = {  # the present forms, and suites whose networks decided none of their numbers
    "nio_ by a clear lead": SHOWN_SUITES,
    "auto_ without a higher rate": SHOWN_SUITES[:3],
}
PRESENT = tuple(UNSEEN)
LEVELS = {  # accuracies that could count as trained, too
    "distortions": (0.4, 0.5, 0.6),
    "strokes": (0.5, 0.6, 0.7),
    "other": (0.25, 0.30, 0.33),
    "digits": (0.85, 0.90, 0.95),
}
APPLIED = {  # a name -> the candidates of `nio_`, or none
    "nothing": (),
    "one factor for all weights": (WHOLE, HALF),
    "a factor for each layer": (LAYERS,),
    "a factor for each layer, and smaller residual branches": (BOTH,),
    "smaller residual branches": (BRANCHES, SMALLER_BRANCHES),
}
OTHERS = ("warmup of one epoch", "LSUV", "GradInit", "MetaInit", "NIO, paper's form")
SHOWN = {BEFORE: BEFORE, **{m: m for m in OTHERS}, **OURS}
LOWER = 0.05  # a share of the test images


def tables(name: str = "fresh", present: bool = False) -> str:
    """Markdown: a line a method; then our functions against the start and against LSUV.

    Args:
        name: The suite.
        present: Of our functions, only the present forms.
    """
    rows = unseen(name)
    if present:
        rows = {m: own for m, own in rows.items() if m not in OURS or m in UNSEEN}
    return f"{_counts(rows, list(SUITES[name].optimizers))}\n\n{_differences(rows)}"


def unseen(name: str) -> dict[str, Rows]:
    """Method -> cell -> row, with what ``trains``; of `digits`, the half that decided no number."""
    suite = SUITES[name]
    networks = list(suite.networks)
    kept = halves(networks)[1] if name == "digits" else networks
    return {
        method: {
            cell: {**row, "trains": row["accuracy"] >= suite.good}
            for cell, row in own.items()
            if cell[0] in kept
        }
        for method, own in found(suite).items()
    }


def overview() -> str:
    """Markdown: our present functions on all unseen networks, beside the start and LSUV."""
    lines = [
        "| method | suite | cells | train | over the start, points | over LSUV | made worse "
        "| by LSUV | of what any method trains |",
        "|---" * 9 + "|",
    ]
    for method, suites in UNSEEN.items():
        parts = {name: unseen(name) for name in suites}
        for name, rows in (*parts.items(), ("all", _together(parts))):
            lines.append(f"| {OURS[method]} | {name} | {_line(rows, method)} |")
    return "\n".join(lines)


def by_start() -> str:
    """Markdown: cells that train, by the start that a method was given."""
    every = _together({name: unseen(name) for name in SHOWN_SUITES})
    methods = {BEFORE: BEFORE, "LSUV": "LSUV", PRESENT[0]: OURS[PRESENT[0]]}
    cells = [c for c in every[PRESENT[0]] if all(c in every[m] for m in methods)]
    lines = ["| start | cells | " + " | ".join(methods.values()) + " | over the start, points |"]
    lines.append("|---" * (len(methods) + 3) + "|")
    for start in (*STARTS, "all"):
        own = [c for c in cells if start in (c[1], "all")]
        counts = [str(sum(_trains(every[m][c]) for c in own)) for m in methods]
        gain = _interval(against(every[PRESENT[0]], every[BEFORE], own))
        lines.append(f"| {start} | {len(own)} | {' | '.join(counts)} | {gain} |")
    return "\n".join(lines)


def thresholds() -> str:
    """Markdown: cells that train, and how many a method makes worse, by what counts as trained."""
    lines = [
        "| suite | trains means | as it is | LSUV (made worse) | `nio_` (made worse) "
        "| `nio_` over LSUV, points |",
        "|---" * 6 + "|",
    ]
    for name, levels in LEVELS.items():
        rows = unseen(name)
        before, lsuv, mine = (rows[m] for m in (BEFORE, "LSUV", PRESENT[0]))
        cells = [c for c in mine if c in before and c in lsuv]
        for level in levels:
            kept = [c for c in cells if before[c]["accuracy"] >= level]
            parts = [str(len(kept))]
            for own in (lsuv, mine):
                train = sum(own[c]["accuracy"] >= level for c in cells)
                worse = sum(own[c]["accuracy"] < level for c in kept)
                parts.append(f"{train} ({worse})")
            found = against(mine, lsuv, cells, lambda row, at=level: float(row["accuracy"] >= at))
            parts.append(_interval(found))
            lines.append(f"| {name}, {len(cells)} cells | {level:.0%} | {' | '.join(parts)} |")
    return "\n".join(lines)


def applied() -> str:
    """Markdown: what `nio_` applied to which share of the cells, and how many train by it."""
    every = _together({name: unseen(name) for name in SHOWN_SUITES})
    mine, before = every[PRESENT[0]], every[BEFORE]
    lines = ["| what `nio_` applied | cells | train as they are | after it |", "|---|---|---|---|"]
    for name, candidates in APPLIED.items():
        texts = [f"applied {candidate}" for candidate in candidates] or ["", "not applied"]
        cells = [c for c, row in mine.items() if row["verified"] in texts]
        parts = [str(sum(_trains(rows[c]) for c in cells)) for rows in (before, mine)]
        lines.append(f"| {name} | {len(cells)} | {' | '.join(parts)} |")
    return "\n".join(lines)


def _together(parts: dict[str, dict[str, Rows]]) -> dict[str, Rows]:
    """The rows of several suites, networks named with their suite."""
    rows: dict[str, Rows] = {}
    for name, part in parts.items():
        for method, own in part.items():
            named = {(f"{name}: {c[0]}", *c[1:]): row for c, row in own.items()}
            rows.setdefault(method, {}).update(named)
    return rows


def _line(rows: dict[str, Rows], method: str) -> str:
    """What a method trains, gains and harms, on the cells that LSUV has, too."""
    mine, before, lsuv = (rows[m] for m in (method, BEFORE, "LSUV"))
    cells = [c for c in mine if c in before and c in lsuv]
    kept = [c for c in cells if _trains(before[c])]
    anyone = [c for c in cells if any(_trains(r[c]) for r in rows.values() if c in r)]
    gains = [_interval(against(mine, r, cells)) for r in (before, lsuv)]
    worse = [f"{sum(not _trains(r[c]) for c in kept)} of {len(kept)}" for r in (mine, lsuv)]
    train = sum(_trains(mine[c]) for c in cells)
    share = f"{train / max(1, len(anyone)):.1%} of {len(anyone)}"
    return " | ".join([f"{len(cells)} | {train}", *gains, *worse, share])


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
            f"| {name} | {len(shared)} | {_text(against(mine, rows[BEFORE], shared))} | "
            f"{_text(against(mine, rows['LSUV'], shared))} | "
            f"{_text(against(mine, rows[BEFORE], kept, lambda r: r['accuracy']))} | "
            f"{share:.1%} of {len(anyone)} |"
        )
    return "\n".join(lines)


def against(
    mine: Rows, theirs: Rows, cells: list[Cell], value: Callable[..., float] | None = None
) -> Compared:
    """The difference of two methods in points; without ``value``, of the share that trains."""
    of = value or (lambda row: float(_trains(row)))
    return compared({c: 100 * of(mine[c]) for c in cells}, {c: 100 * of(theirs[c]) for c in cells})


def _interval(c: Compared) -> str:
    return f"{c.mean:+.1f} ({c.low:+.1f} to {c.high:+.1f})"


def _text(c: Compared) -> str:
    return f"{_interval(c)}, {c.better}:{c.worse}, p = {c.p:.2g}"


def _part(mine: Rows, cells: list[Cell]) -> str:
    return f"{sum(_trains(mine[c]) for c in cells)} of {len(cells)}"


def _trains(row: dict[str, object]) -> bool:
    return bool(row["trains"])


if __name__ == "__main__":
    print(tables(sys.argv[1], present=True) if sys.argv[1:] else overview())
