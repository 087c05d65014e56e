"""Paired comparison of the new default with the records of other methods, cell by cell.

    python -m benchmarks.new_standings digits even      # even, odd or all networks

Intervals are 95% by bootstrap over networks.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from typing import Any

from benchmarks.contenders import METHODS
from benchmarks.new_cells import RESULTS
from benchmarks.suites import SUITES
from benchmarks.trainability import STARTS, read

BEFORE = "as it is"
Cell = tuple[str, str, str, int]  # network, start, optimizer, seed
Found = dict[str, dict[Cell, dict[str, Any]]]


def load(suite: str) -> Found:
    """Method -> cell -> row."""
    found: Found = defaultdict(dict)
    for row in read(SUITES[suite].results):
        fresh = METHODS[row["method"]].fresh
        for start in STARTS if fresh else [row["start"]]:
            found[row["method"]][row["network"], start, row["optimizer"], row["seed"]] = row
    for row in map(json.loads, RESULTS.read_text().splitlines()):
        if row["suite"] == suite:
            cell = (row["network"], row["start"], row["optimizer"], row["seed"])
            found[row["method"]][cell] = row
    return found


def interval(mine: dict[Cell, bool], theirs: dict[Cell, bool]) -> tuple[float, float]:
    """Of the difference of the shares that train, in points."""
    by_network: dict[str, list[int]] = defaultdict(list)
    for cell, trains in mine.items():
        by_network[cell[0]].append(int(trains) - int(theirs[cell]))
    networks, generator = list(by_network.values()), random.Random(0)
    shares = []
    for _ in range(2000):
        drawn = [d for n in generator.choices(networks, k=len(networks)) for d in n]
        shares.append(100 * sum(drawn) / len(drawn))
    shares.sort()
    return shares[50], shares[1949]


def main() -> None:
    """A table for every form of the new default, on the cells that it has."""
    suite, half = SUITES[sys.argv[1]], sys.argv[2]
    networks = list(suite.networks)
    chosen = {"even": networks[::2], "odd": networks[1::2], "all": networks}[half]
    found = load(sys.argv[1])
    for form in [m for m in found if m.startswith("new")]:
        cells = [c for c in found[form] if c[0] in chosen]
        if not cells:
            continue
        print(f"\n{form}: {len(cells)} cells of {len({c[0] for c in cells})} networks, {half}")
        print("| method | trains | rescued | made worse | area | by optimizer | difference |")
        print("|---|---|---|---|---|---|---|")
        trains = {
            m: {c: rows[c]["accuracy"] >= suite.good for c in cells}
            for m, rows in found.items()
            if all(c in rows for c in cells)
        }
        before = trains[BEFORE]
        for method in [BEFORE, "LSUV", "NIO()", "auto_", form]:
            if method not in trains:
                continue
            mine = trains[method]
            parts = [sum(mine[c] for c in cells if c[2] == o) for o in suite.optimizers]
            low, high = interval(trains[form], mine)
            area = sum(found[method][c]["area"] for c in cells) / len(cells)
            print(
                f"| {method} | {sum(mine.values())} | {sum(mine[c] > before[c] for c in cells)} | "
                f"{sum(mine[c] < before[c] for c in cells)} | {area:.2f} | {parts} | "
                f"{low:+.1f} to {high:+.1f} |"
            )
        anyone = sum(any(t[c] for t in trains.values()) for c in cells)
        print(f"{anyone} train by at least one method.")
        worse = [c for c in cells if before[c] and not trains[form][c]]
        changed = [c for c in worse if found[form][c].get("applied", "whole") != "none"]
        print(f"Of {len(worse)} made worse, the model was changed in {len(changed)}: {changed}")


if __name__ == "__main__":
    main()
