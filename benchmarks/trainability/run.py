"""Which starts train: every method of the library on small networks, five starts each.

    make trainability                    # all that is missing, on all cores; resumable
    make trainability ARGS=--quick       # four networks, one seed, some methods: a few minutes
    make trainability ARGS=--table       # only the table and the figure of what is there
    make trainability ARGS="--suite other --data folder:CIFAR10"    # other networks, other data
    python -m benchmarks.trainability --methods "NIO()" --networks "residual*" --seeds 0

A cell is a network, the start that a method is given, an optimizer and a seed. It *trains* if the
test accuracy at the end is at least 90% (`digits`), or 25% (`other`: CIFAR-10, 16x16). Results are
appended to digits.jsonl, other.jsonl and so on, the name of the suite, as they come.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import nn

import neuroinit as ni
from benchmarks.trainability.contenders import METHODS, Contender
from benchmarks.trainability.standings import BEFORE, figure, tables
from benchmarks.trainability.suites import SUITES, Suite
from neuroinit.common.files import replacing
from neuroinit.experiments.training.simple_loop import Training, train

QUICK_RESULTS = Path(__file__).with_name("quick.jsonl")  # always anew
BATCH = 64
CAP = 5.0  # of a loss, in the area under its curve


def multiplied(factor: float) -> Callable[[nn.Module, Any], None]:
    """Weights, not biases or gains, times a factor."""

    def start(model: nn.Module, batches: Any) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() >= 2:
                    parameter.mul_(factor)

    return start


STARTS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "torch's": lambda model, batches: None,
    "times 3": multiplied(3.0),
    "divided by 3": multiplied(1 / 3),
    "Kaiming": lambda model, batches: ni.kaiming_(model),
    "LSUV": lambda model, batches: ni.lsuv_(model, batches, progress=False),
}
QUICK = (  # methods, networks, seeds
    ("as it is", "LSUV", "NIO, paper's form", "NIO()"),
    ("MLP, 10 tanh*", "residual MLP, 20*", "CNN, 4*", "recurrent, tanh"),
    (0,),
)

Job = tuple[str, str, str, int]  # method, network, start, seed


def run(job: Job, suite: str = "digits", source: str = "") -> list[dict[str, Any]]:
    """One network from one start by one method, trained with every optimizer."""
    method, network, start, seed = job
    chosen = SUITES[suite]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of layers that a classic start leaves alone
    data = chosen.data(source)
    batches = data.batches(64, BATCH, 100 + seed)
    torch.manual_seed(seed)
    model = chosen.networks[network]()
    STARTS[start](model, batches)
    contender: Contender = METHODS[method]
    row: dict[str, Any] = dict(zip(("method", "network", "start", "seed"), job, strict=True))
    made: tuple[nn.Module, dict[str, Any]] | None = None
    rows = []
    for name, optimizer in chosen.optimizers.items():
        if made is None or contender.aware:
            made = _made(contender, copy.deepcopy(model), batches, optimizer)
        started, told = made
        known = as_it_is(suite).get((network, start, seed, name))
        if known and method != BEFORE and not contender.schedule and _same(started, model):
            rows.append({**row, **told, "unchanged": True, "optimizer": name, **known})
            continue
        torch.manual_seed(seed)  # of dropout
        trained = train(
            copy.deepcopy(started),
            data,
            epochs=chosen.epochs,
            batch_size=BATCH,
            seed=seed,
            make_optimizer=optimizer,
            schedule=contender.schedule,
        )
        steps = chosen.epochs * (len(data.train[0]) // BATCH)
        accuracy, mean = round(trained.accuracy, 4), round(area(trained, steps), 4)
        result = {"optimizer": name, "accuracy": accuracy, "area": mean}
        rows.append({**row, **told, **result})
    return rows


@cache
def as_it_is(suite: str) -> dict[tuple[str, str, int, str], dict[str, float]]:
    """What became of the starts: a method that changes nothing need not train again."""
    keys = ("network", "start", "seed", "optimizer")
    return {
        tuple(row[k] for k in keys): {"accuracy": row["accuracy"], "area": row["area"]}
        for row in read(SUITES[suite].results)
        if row["method"] == BEFORE
    }


def _same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def _made(
    contender: Contender, model: nn.Module, batches: Any, optimizer: Any
) -> tuple[nn.Module, dict[str, Any]]:
    """The model after a method; one that refuses leaves it as it was, and that is noted."""
    begun, before = time.process_time(), copy.deepcopy(model)
    try:
        told = contender.apply(model, batches, optimizer) or {}
    except (ni.GradientError, ValueError) as error:
        return before, {"error": str(error)}
    return model, {**told, "seconds": round(time.process_time() - begun, 2)}


def area(trained: Training, steps: int) -> float:
    """Mean training loss; what comes after a divergence counts as the cap."""
    capped = [min(x, CAP) if x == x else CAP for x in trained.losses]
    capped += [CAP] * (steps - len(capped))
    return sum(capped) / len(capped)


def read(path: Path) -> list[dict[str, Any]]:
    """All results so far, a row a cell."""
    found = [json.loads(line) for line in _whole_lines(path)]
    return [{**job, **cell} for job in found for cell in job.pop("cells", [{}])]


def packed(rows: list[dict[str, Any]]) -> str:
    """The line of a job: what its cells have in common is written once."""
    common = {k: v for k, v in rows[0].items() if all(r.get(k) == v for r in rows)}
    cells = [{k: v for k, v in row.items() if k not in common} for row in rows]
    return json.dumps({**common, "cells": cells}) + "\n"


def _whole_lines(path: Path) -> list[str]:
    """Without the end of a line that was cut off when a run was killed."""
    whole, _, _ = (path.read_text() if path.exists() else "").rpartition("\n")
    return whole.splitlines()


def fill(path: Path, missing: list[Job], workers: int, do: Callable[[Job], Any] = run) -> None:
    """Run jobs on several processes, and append what they find as it comes."""
    if path.exists():
        with replacing(path) as temporary:
            temporary.write_text("".join(line + "\n" for line in _whole_lines(path)))
    with get_context("spawn").Pool(workers) as pool, path.open("a") as file:
        for rows in track(pool.imap_unordered(do, missing), total=len(missing)):
            file.write(packed(rows))
            file.flush()


def jobs(
    suite: Suite, methods: Iterable[str], networks: Iterable[str], seeds: Iterable[int]
) -> list[Job]:
    """The grid, method by method; one that draws afresh sees one start only."""
    chosen = [n for n in suite.networks if any(fnmatch.fnmatch(n, pattern) for pattern in networks)]
    return [
        (method, network, start, seed)
        for method in methods
        for seed in seeds
        if seed < min(suite.seeds, METHODS[method].seeds)
        for network in chosen
        for start in (list(STARTS)[:1] if METHODS[method].fresh else STARTS)
    ]


def main() -> None:
    """Run what is missing, then print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=list(SUITES), default="digits")
    parser.add_argument("--data", default="cifar10", help="the images of `other`; or folder:PATH")
    parser.add_argument("--quick", action="store_true", help="a few minutes' part of `digits`")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="NAME")
    parser.add_argument("--networks", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.quick and args.suite != "digits":
        parser.error("--quick is a part of the suite `digits`.")
    suite = SUITES[args.suite]
    path, picture = suite.results, suite.picture
    grid = (args.methods, args.networks, args.seeds)
    if args.quick:
        path, picture, grid = QUICK_RESULTS, QUICK_RESULTS.with_suffix(".png"), QUICK
        path.unlink(missing_ok=True)
    wanted = jobs(suite, *grid)
    done = {_job(row) for row in read(path)}
    missing = [] if args.table else [job for job in wanted if job not in done]
    if missing:
        fill(path, missing, args.workers, partial(run, suite=args.suite, source=args.data))
    wanted = jobs(suite, dict.fromkeys([BEFORE, *grid[0]]), *grid[1:])
    keys = set(wanted)
    rows = [row for row in read(path) if _job(row) in keys]
    print(tables(rows, list(STARTS), wanted, suite.good))
    figure(rows, list(STARTS), wanted, picture, suite.good)


def _job(row: dict[str, Any]) -> Job:
    return row["method"], row["network"], row["start"], row["seed"]


if __name__ == "__main__":
    main()
