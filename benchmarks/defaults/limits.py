"""The limits of `CommonFactor`: what the rule sees of a start, and what became of that start.

    python -m benchmarks.defaults.limits run      # appends to limits.jsonl; two minutes
    python -m benchmarks.defaults.limits table    # for docs/evidence/defaults.md

Ten networks of the suite ``digits``, those with an even place, from five starts with three seeds.
What the rule sees is measured on the first batch. Outcomes are those of ``as it is``, ``NIO()`` of
16 November 2026 and ``LSUV`` in the records of the suite.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import neuroinit as ni
from benchmarks.trainability.run import BATCH, STARTS
from benchmarks.trainability.run import read as read_suite
from benchmarks.trainability.standings import BEFORE, Cell, by_cell
from benchmarks.trainability.suites import SUITES
from neuroinit.common.errors import NonFiniteError
from neuroinit.gradients.statistics.sensitivity import sensitivity
from neuroinit.model.arguments.optimizers import family_of, rate_of
from neuroinit.model.problem import Problem

RESULTS = Path(__file__).with_name("limits.jsonl")
SUITE, EARLIER = SUITES["digits"], "NIO()"
NETWORKS = list(SUITE.networks)[::2]
DEAD, EXPLODES, PROMISE = 0.1, 2.0, 10.0  # those of `CommonFactor`
Row = dict[str, Any]


def seen(network: str, start: str, seed: int) -> Row:
    """Loss, ``s``, ``||g||^2`` and ``sum|g|`` of a start, in units of ``L_0``."""
    batches = SUITE.data("").batches(64, BATCH, 100 + seed)
    torch.manual_seed(seed)
    model = SUITE.networks[network]()
    STARTS[start](model, batches)
    row: Row = {"network": network, "start": start, "seed": seed}
    problem = Problem(model, F.cross_entropy)
    method = ni.NIO().resolve(problem, batches[0])
    plan, unit = method.plan(problem, batches[0], None), float(method.gamma)
    try:
        found = sensitivity(problem.at(problem.unit_scales), batches[0], plan)
    except NonFiniteError:
        return {**row, "finite": False}
    weights = torch.tensor([problem.start[name].dim() >= 2 for name in problem.scaled])
    s = float((found.by_tensor * weights).max())
    values = {"loss": found.loss, "s": s, "squared": found.squared, "absolute": found.absolute}
    return {**row, "finite": True, **{k: float(f"{v / unit:.5g}") for k, v in values.items()}}


def works(row: Row, optimizer: str, dead: float = DEAD, promise: float = PROMISE) -> bool:
    """Whether the rule leaves a start alone."""
    if not row["finite"] or row["loss"] > EXPLODES:
        return False
    make = SUITE.optimizers[optimizer]
    promised = row["squared" if family_of(make) == "sgd" else "absolute"] * (rate_of(make) or 0.0)
    return bool(row["s"] >= dead and promised <= promise)


@cache
def outcomes() -> dict[str, dict[Cell, bool]]:
    """Method -> cell -> whether it trains."""
    found = by_cell(read_suite(SUITE.results), list(STARTS))
    return {
        method: {cell: row["accuracy"] >= SUITE.good for cell, row in found[method].items()}
        for method in (BEFORE, EARLIER, "LSUV")
    }


def with_limits(dead: float = DEAD, promise: float = PROMISE) -> dict[Cell, bool]:
    """Cell -> whether it trains: by the earlier `NIO()` where the rule changes a start."""
    trains: dict[Cell, bool] = {}
    for row, optimizer in itertools.product(read(), SUITE.optimizers):
        cell = (row["network"], row["start"], optimizer, row["seed"])
        alone = works(row, optimizer, dead, promise)
        trains[cell] = outcomes()[BEFORE if alone else EARLIER][cell]
    return trains


def table() -> str:
    """Markdown: cells that train, and cells that train only as they are."""
    before, limited = outcomes()[BEFORE], with_limits()
    rows = {
        "as it is": before,
        "with these limits": limited,
        "the earlier `NIO()`": outcomes()[EARLIER],
        "LSUV": outcomes()["LSUV"],
    }
    lines = [f"| {len(limited)} cells | train | made worse |", "|---|---|---|"]
    for name, trains in rows.items():
        worse = sum(before[cell] > trains[cell] for cell in limited)
        lines.append(f"| {name} | {sum(trains[cell] for cell in limited)} | {worse} |")
    return "\n".join(lines)


def other_limits() -> str:
    """Markdown: cells that train with other limits."""
    promises = (2.0, 5.0, 10.0, 20.0, 40.0)
    names = " | ".join(f"promise {p:g}" for p in promises)
    lines = [f"| cells that train | {names} |", "|---|" + "---|" * len(promises)]
    for dead in (0.05, 0.1, 0.2):
        counts = [sum(with_limits(dead, p).values()) for p in promises]
        lines.append(f"| `s < {dead:g}` is dead | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def read() -> list[Row]:
    """All records so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def main() -> None:
    """Measure what is missing, or print the tables."""
    if sys.argv[1] == "table":
        print(f"{table()}\n\n{other_limits()}")
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["network"], r["start"], r["seed"]) for r in read()} if RESULTS.exists() else set()
    for start in itertools.product(NETWORKS, STARTS, range(SUITE.seeds)):
        if start not in done:
            with RESULTS.open("a") as file:
                file.write(json.dumps(seen(*start)) + "\n")


if __name__ == "__main__":
    main()
