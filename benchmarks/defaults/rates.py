"""Do short trainings at a higher learning rate show earlier which start is better?

    python -m benchmarks.defaults.rates run SUITE SOURCE [SEED]     # appends; resumable
    python -m benchmarks.defaults.rates fill SUITE SOURCE ARM       # one candidate, in old records
    python -m benchmarks.defaults.rate_tables                       # what follows

For every cell and every candidate: the validation loss ``L`` and what was learned, ``I``, after 4,
8, 12 and 16 steps at 1, 2, 4 and 8 times the learning rate, and how the whole training ends. Cells
are those of :mod:`benchmarks.defaults.candidates`, with more suites and another seed. Of images
only those for training are used.

Candidates: ``own`` is the start, ``whole`` and ``half`` the result of `NIO()`, ``layers`` unit
variance of every layer by scales, ``LSUV`` the same with orthonormal values, ``small`` and
``smaller`` the ends of residual branches divided by the root of their number and by their number,
``layers small`` first ``layers``, then ``small``. ``normal small``, in networks with embeddings,
gives weights and embeddings a standard deviation of 0.02, and then is ``small``.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from benchmarks.defaults.candidates import Case, image_cases, text_cases
from benchmarks.defaults.layer_factors import NOT_FINITE, faster, scaled
from benchmarks.trainability.suites import SUITES
from neuroinit.common.files import replacing
from neuroinit.methods.classic.layers import EMBEDDINGS
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.model.problem import Problem
from neuroinit.run.rollout import Rollout, split_batches

FOLDER = Path(__file__).parent
KEYS = ("suite", "network", "start", "seed")
RATES = (1.0, 2.0, 4.0, 8.0)
STEPS = (4, 4, 4, 4)
Row = dict[str, Any]


def rows_of(case: Case) -> Iterator[Row]:
    """One record for each optimizer."""
    arms = candidates_of(case)
    for name, make in case.optimizers.items():
        row: Row = {**case.names, "optimizer": name}
        model = copy.deepcopy(case.model)
        options = {"optimizer": make, "verify": False, "progress": False}
        result = ni.nio_(model, case.batches, case.loss_fn, **options)
        changed = dict(arms)
        if set(result.scales.values()) != {1.0}:
            changed["whole"] = scaled(case.model, result.scales)
            changed["half"] = scaled(case.model, result.scales, 0.5)
        for arm, started in changed.items():
            row[arm] = outcome(started, make, case)
        yield row


def candidates_of(case: Case) -> dict[str, nn.Module]:
    """The candidates that do not depend on the optimizer, by name."""
    methods: dict[str, list[ni.Initialization]] = {
        "layers": [ni.LSUV(redraw=False)],
        "LSUV": [ni.LSUV()],
        "small": [SmallBranches()],
        "smaller": [SmallBranches(), SmallBranches()],
        "layers small": [ni.LSUV(redraw=False), SmallBranches()],
    }
    if any(isinstance(module, EMBEDDINGS) for module in case.model.modules()):
        methods["normal small"] = [SmallBranches(std=0.02)]
    found = {"own": case.model}
    for arm, parts in methods.items():
        torch.manual_seed(case.names["seed"])
        model = copy.deepcopy(case.model)
        try:
            for method in parts:
                loss_fn = case.loss_fn if method.needs_loss else None
                ni.optimize(model, case.batches, loss_fn, method, progress=False).apply_(model)
        except (ni.GradientError, ValueError) as error:
            print(case.names, arm, error, file=sys.stderr)
            continue
        if not any(_same(model, other) for other in found.values()):
            found[arm] = model
    return found


def _same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def outcome(model: nn.Module, make: Any, case: Case) -> Row:
    """What short trainings reach, and how the whole training ends."""
    problem = Problem(model, case.loss_fn, None)
    validation, training = split_batches(case.batches[:16], 2)
    found: Row = {"rates": {}}
    before = Rollout(problem, problem.original, make).outcome(validation)
    found["start"] = [_rounded(before.losses), _rounded(before.learned)]
    for rate in RATES:
        rollout = Rollout(problem, problem.original, faster(make, rate))
        feed = itertools.cycle(training)
        table = []
        for part in STEPS:
            rollout.train(feed, part)
            seen = rollout.outcome(validation)
            table.append([_rounded(seen.losses), _rounded(seen.learned)])
        found["rates"][f"{rate:g}"] = table
        found.setdefault("first", round(rollout.losses[0], 5))
    return {**found, **case.end(copy.deepcopy(model), make)}


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{x:.5g}") if math.isfinite(x) else NOT_FINITE for x in values]


def results(suite: str) -> Path:
    """The file of a suite."""
    return FOLDER / f"rates-{suite}.jsonl"


def read(suite: str) -> list[Row]:
    """All records of a suite so far."""
    path = results(suite)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def chosen_on(suite: str) -> set[str]:
    """The networks of a suite that defaults may be chosen on; of digits every other one."""
    if suite == "text":
        return {f"GPT, {n} blocks, {norm}" for n in (6, 12) for norm in ("post", "pre", "none")}
    return set(list(SUITES[suite].networks)[:: 2 if suite == "digits" else 1])


def cases_of(suite: str, source: str, seed: int) -> Iterator[Case]:
    """All cases of a suite."""
    return text_cases(source, seed) if suite == "text" else image_cases(suite, source, seed)


def missing(suite: str, source: str, seeds: Iterable[int], rows: list[Row]) -> Iterator[Case]:
    """The cases of a suite that defaults may be chosen on, without those of some records."""
    done = {tuple(row[k] for k in KEYS) for row in rows}
    for seed in seeds:
        for case in cases_of(suite, source, seed):
            mine = case.names["network"] in chosen_on(suite)
            if mine and tuple(case.names[k] for k in KEYS) not in done:
                yield case


def fill(suite: str, source: str, arm: str) -> None:
    """Add a candidate to the records of the cases that have it."""
    rows = read(suite)
    for seed in sorted({row["seed"] for row in rows}):
        for case in cases_of(suite, source, seed):
            own = [r for r in rows if all(r[k] == case.names[k] for k in case.names)]
            own = [row for row in own if arm not in row]
            model = candidates_of(case).get(arm) if own else None
            for row in own if model is not None else []:
                row[arm] = outcome(model, case.optimizers[row["optimizer"]], case)
                print(case.names, row["optimizer"], flush=True)
    with replacing(results(suite)) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    """Run what is missing."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    what, suite, source, *rest = sys.argv[1:]
    if what == "fill":
        fill(suite, source, rest[0])
        return
    for case in missing(suite, source, map(int, rest or ["6"]), read(suite)):
        lines = [json.dumps(row) + "\n" for row in rows_of(case)]
        with results(suite).open("a") as file:
            file.writelines(lines)


if __name__ == "__main__":
    main()
