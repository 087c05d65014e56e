"""How should `auto_` decide? Its last round, and how the start and the best candidate end.

    python -m benchmarks.defaults.auto_checks run SUITE SOURCE [SEED]    # appends; resumable
    python -m benchmarks.defaults.auto_checks table                      # what follows

Cells are those of :mod:`benchmarks.defaults.rates` with another seed: networks that defaults may be
chosen on, and of images only those for training. ``own`` is the start as it is, ``best`` the best
candidate of the last round; each is trained to the end. ``errors`` is by how many standard errors
it is ahead (``null``: the start fails), ``stable`` whether it is ahead after 25 steps at twice the
learning rate, too, which `auto_` asked until 19 November 2026.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import neuroinit as ni
from benchmarks.defaults.candidates import Case
from benchmarks.defaults.layer_factors import faster
from benchmarks.defaults.rate_tables import counted
from benchmarks.defaults.rates import missing
from neuroinit.choose import auto
from neuroinit.choose.auto_result import START
from neuroinit.choose.tournament import Tournament
from neuroinit.model.problem import Problem
from neuroinit.run.judging import Judge
from neuroinit.run.rollout import Rollout

RESULTS = Path(__file__).with_name("auto_checks.jsonl")
FASTER_STEPS = 25
Row = dict[str, Any]


def rows_of(case: Case) -> list[Row]:
    """One record for each optimizer."""
    return [{**case.names, "optimizer": n, **_cell(case, m)} for n, m in case.optimizers.items()]


def _cell(case: Case, make: Any) -> Row:
    held: list[Tournament] = []

    class Kept(Tournament):
        """Is kept for what it has seen."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            held.append(self)

    model = copy.deepcopy(case.model)
    torch.manual_seed(case.names["seed"])
    with mock.patch.object(auto, "Tournament", Kept):
        result = ni.auto_(model, case.batches, case.loss_fn, optimizer=make, progress=False)
    (seen,) = held
    rounds = max(map(len, seen.outcomes.values()))
    last = {n: s[-1] for n, s in seen.outcomes.items() if rounds and len(s) == rounds}
    row: Row = {
        "applied": result.winner,
        "cost": round(result.cost, 1),
        "steps": result.steps,
        "own": case.end(copy.deepcopy(case.model), make),
    }
    if not last:
        return row
    judge = Judge(last[START], seen.rollouts[START].losses[0]).among(last.values())
    best = judge.best(last)
    if best and best != START:
        twin = copy.deepcopy(case.model)
        for found in seen.results[best]:
            found.apply_(twin)
        fails = judge.start_fails
        row |= {
            "name": best,
            "errors": None if fails else _errors(*judge.lead(last[best])),
            "stable": None if fails else _is_stable(seen, twin, case, make),
            "best": case.end(twin, make),
        }
    return row


def _errors(gain: float, noise: float) -> float:
    """By how many standard errors a candidate is ahead."""
    return round(gain / noise, 2) if noise else math.copysign(99.0, gain)


def _is_stable(seen: Tournament, best: nn.Module, case: Case, make: Any) -> bool:
    """Whether the best candidate is ahead at twice the learning rate, too."""
    batches = random.Random(1).sample(seen.training, len(seen.training))
    outcomes = []
    for model in (case.model, best):
        problem = Problem(model, case.loss_fn, None)
        rollout = Rollout(problem, problem.original, faster(make, 2.0))
        rollout.train(itertools.cycle(batches), FASTER_STEPS)
        outcomes.append(rollout.outcome(seen.validation))
    judge = Judge(outcomes[0], seen.rollouts[START].losses[0]).among(outcomes)
    return judge.score(outcomes[1]) <= judge.score(judge.start)


def read() -> list[Row]:
    """All records so far."""
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def decides(errors: float, check: bool) -> Callable[[Row], str]:
    """The start that is applied by a rule."""

    def rule(row: Row) -> str:
        if "best" not in row:
            return "own"
        if row["errors"] is None:  # the start fails
            return "best"
        unstable = check and row["stable"] is False
        return "best" if row["errors"] > errors and not unstable else "own"

    return rule


RULES: dict[str, Callable[[Row], str]] = {
    "as it is": lambda row: "own",
    "ahead by 2 standard errors, and at twice the learning rate": decides(2, True),
    "**ahead by 2 standard errors**": decides(2, False),
    "ahead by 1 standard error, and at twice the learning rate": decides(1, True),
    "ahead by 1 standard error": decides(1, False),
    "the best, always": lambda row: "best" if "best" in row else "own",
}


def table() -> str:
    """Markdown: a line a rule."""
    return counted(read(), RULES)


def main() -> None:
    """Run what is missing, or print the table."""
    if sys.argv[1] == "table":
        print(table())
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    suite, source, *rest = sys.argv[2:]
    for case in missing(suite, source, map(int, rest or ["7"]), read()):
        lines = [json.dumps(row) + "\n" for row in rows_of(case)]
        with RESULTS.open("a") as file:
            file.writelines(lines)


if __name__ == "__main__":
    main()
