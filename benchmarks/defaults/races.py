"""Should short trainings be longer, have more validation batches, or be a race?

    python -m benchmarks.defaults.races run SUITE SOURCE [SEED]     # appends; resumable
    python -m benchmarks.defaults.races table                       # what follows

For cells of :mod:`benchmarks.defaults.rates`, and every start that `nio_` can try: losses and what
was learned after 4, 8, ..., 32 steps on new batches, on eight batches for validation. How the whole
trainings end is in the records of ``rates``. In a race, the best start after a few steps is trained
further, and compared with the model as it is.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from benchmarks.defaults.candidates import Case
from benchmarks.defaults.layer_factors import NOT_FINITE, scaled
from benchmarks.defaults.rate_tables import GOOD, Rule, counted
from benchmarks.defaults.rates import candidates_of, missing
from benchmarks.defaults.rates import read as read_rates
from neuroinit.model.problem import Problem
from neuroinit.run.judging import Judge
from neuroinit.run.rollout import Outcome, Rollout
from neuroinit.run.verify import LEAST

FOLDER = Path(__file__).parent
KEYS = ("suite", "network", "start", "seed", "optimizer")
CHECKS = range(4, 33, 4)  # steps
HELD = 8  # batches for validation
Row = dict[str, Any]


def rows_of(case: Case, known: dict[tuple[Any, ...], Row]) -> list[Row]:
    """One record for each optimizer of a case."""
    arms = candidates_of(case)
    rows = []
    for name, make in case.optimizers.items():
        row: Row = {**case.names, "optimizer": name}
        old = known[_key(row)]
        changed = {arm: arms[arm] for arm in tried(old) if arm in arms}
        if "whole" in old:
            options = {"optimizer": make, "verify": False, "progress": False}
            result = ni.nio_(copy.deepcopy(case.model), case.batches, case.loss_fn, **options)
            changed["whole"] = scaled(case.model, result.scales)
            changed["half"] = scaled(case.model, result.scales, 0.5)
        for arm, started in changed.items():
            row[arm] = curve(started, make, case)
        rows.append(row)
    return rows


def tried(row: Row) -> list[str]:
    """The starts that `nio_` can try for a cell, and LSUV's."""
    arms = ["own", "LSUV"]
    arms += ["small", "smaller", "layers small", "normal small"] if "small" in row else ["layers"]
    return [arm for arm in arms if arm in row]


def curve(model: nn.Module, make: Any, case: Case) -> list[list[list[float]]]:
    """Losses and what was learned, on every batch, after every few steps."""
    problem = Problem(model, case.loss_fn, None)
    validation, training = case.batches[:HELD], itertools.cycle(case.batches[HELD:])
    rollout = Rollout(problem, problem.original, make)
    found = []
    for before, after in itertools.pairwise([0, *CHECKS]):
        rollout.train(training, after - before)
        seen = rollout.outcome(validation)
        found.append([_rounded(seen.losses), _rounded(seen.learned)])
    return found


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{x:.4g}") if math.isfinite(x) else NOT_FINITE for x in values]


def results(suite: str) -> Path:
    """The file of a suite."""
    return FOLDER / f"races-{suite}.jsonl"


def read(suite: str) -> list[Row]:
    """All records of a suite so far."""
    path = results(suite)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@cache
def cells() -> tuple[Row, ...]:
    """The records of ``rates`` that have a race, with the outcomes of the race."""
    races = {_key(row): row for suite in GOOD for row in read(suite)}
    known = [row for suite in GOOD for row in read_rates(suite) if _key(row) in races]
    return tuple({**row, "race": races[_key(row)]} for row in known)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[k] for k in KEYS)


@dataclass(frozen=True)
class Race:
    """A way to decide.

    Args:
        steps: Of the trainings that decide.
        held: Batches for validation.
        heat: Steps after which only the best start and the model as it is are trained further; 0
            if all are.
    """

    steps: int
    held: int = 4
    heat: int = 0

    def __call__(self, row: Row) -> str:
        """The name of the start that is applied."""
        judge = Judge(self.outcome(row, "own", self.heat or self.steps), row["own"]["first"])
        names = [arm for arm in Rule().tried(row, judge.start_fails) if arm in row["race"]]
        if self.heat:
            seen = {arm: self.outcome(row, arm, self.heat) for arm in names}
            best = judge.among(seen.values()).best(seen)
            names = [best] if best else []
        judge = Judge(self.outcome(row, "own", self.steps), row["own"]["first"])
        last = {arm: self.outcome(row, arm, self.steps) for arm in names}
        judge = judge.among(last.values())
        best = judge.best(last)
        if not best or not (judge.start_fails or judge.is_ahead(last[best], 1.0, LEAST)):
            return "own"
        return best

    def outcome(self, row: Row, arm: str, steps: int) -> Outcome:
        """What a training has reached after some steps."""
        losses, learned = (x[: self.held] for x in row["race"][arm][CHECKS.index(steps)])
        return Outcome([math.inf if x >= NOT_FINITE else x for x in losses], learned)


WAYS: dict[str, Callable[[Row], str]] = {
    "as it is": lambda row: "own",
    "**12 steps, 4 batches for validation**": Race(12),
    "12 steps, 8 batches": Race(12, 8),
    "24 steps, 4 batches": Race(24),
    "24 steps, 8 batches": Race(24, 8),
    "32 steps, 4 batches": Race(32),
    "32 steps, 8 batches": Race(32, 8),
    "a race: 4 steps, and 20 more for the best and the model as it is": Race(24, heat=4),
    "a race: 8 steps, and 8 more": Race(16, heat=8),
    "a race: 8 steps, and 24 more": Race(32, heat=8),
}


def table() -> str:
    """Markdown: a line for each way to decide."""
    return counted(cells(), WAYS)


def main() -> None:
    """Run what is missing, or print the table."""
    if sys.argv[1] == "table":
        print(table())
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    suite, source, *rest = sys.argv[2:]
    known = {_key(row): row for row in read_rates(suite)}
    for case in missing(suite, source, map(int, rest or ["6"]), read(suite)):
        lines = [json.dumps(row) + "\n" for row in rows_of(case, known)]
        with results(suite).open("a") as file:
            file.writelines(lines)


if __name__ == "__main__":
    main()
