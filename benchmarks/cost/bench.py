"""What a step costs: time in training steps, and peak extra memory, each in a process of its own.

    python -m benchmarks.cost.bench            # everything; resumes what is in the JSON file
    python -m benchmarks.cost.bench --quick    # about three minutes
    python -m benchmarks.cost.bench --table    # only the table and the figure of what is there
    python -m benchmarks.cost.bench --again "GPT-2.*keep, D=16"   # some rows once more

A training step is one forward and backward pass of the same batch in the same process; three of
them follow each step that is measured. Times are processor time of one thread by default: on a
machine that others use, too, wall clocks and several threads measure the others.

How often the C library returns memory to the system depends on what else is in the heap. In a loop
of training steps it does so every step, between two steps of a method never, so a training step
would have another price there. The process that measures times keeps its heap, so neither pays for
new pages. Memory is measured in a second process, which gives every freed tensor back.

"One step in all" is a run of `optimize` with one step: trials, choice of the engine, automatic
bound, the step, statistics before and after. It is the least of three runs after a first one, or of
as many as take ten seconds. Operators are kernels of a step divided by those of a training step,
and waits are points of a step where the CPU waits for the device: both are the price on an
accelerator, counted on the test device of `operators.py`, for networks that people have with two
samples a sub-batch. Rows that have not been counted yet are counted at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.progress import Progress, TimeElapsedColumn

import neuroinit as ni
from benchmarks.cost import authors
from benchmarks.cost.cases import AUTHORS, RIVALS, TRAINING, WAYS, Case, full, quick
from benchmarks.cost.figure import draw
from benchmarks.cost.operators import step_counts
from benchmarks.cost.workloads import REAL, Workload, workload
from neuroinit.experiments.memory import peak_memory

FOLDER = Path(__file__).parent
STEPS = 6  # the first two warm up
ENOUGH = 10.0  # seconds of whole runs, unless there are three before
REPEATS = 3  # training steps after a step, so that both last about as long: others disturb both


# settings of glibc's malloc; other C libraries ignore them
KEEPS_ITS_HEAP = {
    "MALLOC_MMAP_THRESHOLD_": str(2**36),
    "MALLOC_TRIM_THRESHOLD_": str(2**36),
    "MALLOC_TOP_PAD_": str(2**29),
}
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": str(2**16)}


def measure(case: Case, threads: int) -> dict[str, Any]:
    """One case: times in one process, and memory in another."""
    return {
        **alone(times, (case, threads), KEEPS_ITS_HEAP),
        **alone(memory, (case, threads), GIVES_BACK),
    }


def prepared(case: Case, threads: int) -> tuple[Workload, Callable[[], None]]:
    """The model of a case with its batch, and a training step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    work = workload(case.model, case.B)
    model = work.model.train()

    def training_step() -> None:
        model.zero_grad()
        work.loss().backward()

    return work, training_step


def memory(job: tuple[Case, int]) -> dict[str, Any]:
    """The peak of memory of two steps, over that of the idle process."""
    case, threads = job
    work, training_step = prepared(case, threads)
    idle, peaks = peak_memory(), list[int]()
    _run(case, work, 2, training_step, lambda: peaks.append(peak_memory()))
    return {"extra_mb": (peaks[-1] - idle) / 2**20}


def times(job: tuple[Case, int]) -> dict[str, Any]:
    """A step in turns with a training step, and runs with one step in all."""
    case, threads = job
    work, training_step = prepared(case, threads)
    clock = Clock(training_step, time.process_time if threads == 1 else time.perf_counter)
    _run(case, work, STEPS, training_step, clock.lap)
    laps = [clock.now()]
    while len(laps) < 4 and laps[-1] - laps[0] < ENOUGH:
        _run(case, work, 1, training_step, lambda: None)
        laps.append(clock.now())
    whole = min(b - a for a, b in itertools.pairwise(laps))
    return {
        **dataclasses.asdict(case),
        "parameters": sum(p.numel() for p in work.model.parameters()),
        "seconds": clock.seconds,
        "training_seconds": clock.training_seconds,
        "training_steps": clock.seconds / clock.training_seconds,
        "first_steps": whole / clock.training_seconds,
        "threads": threads,
        "machine": f"{platform.machine()}, torch {torch.__version__}",
        "date": date.today().isoformat(),
    }


def count(case: Case) -> dict[str, Any]:
    """Operators and waits of a step on the test device; nothing where it cannot run a model."""
    torch.manual_seed(0)
    work = workload(case.model, min(case.B, 2 * case.D) if case.model in REAL else case.B)
    make, arguments = WAYS[case.way]
    settings = {"loss_fn": None, **arguments, **work.arguments}
    try:
        found = step_counts(work.model, work.batch, make(case, 3), **settings)
    except (RuntimeError, NotImplementedError) as error:
        return {"operators": None, "waits": None, "uncounted": str(error)[:200]}
    share = found["step"]["operators"] / found["training"]["operators"]
    return {"operators": share, "waits": found["step"]["waits"]}


def is_uncounted(row: dict[str, Any]) -> bool:
    """Whether the operators of a row can be counted and have not been."""
    return row["way"] in WAYS and "operators" not in row


def counted(case: Case) -> dict[str, Any]:
    """What :func:`count` finds in a process of its own; the test device can end it."""
    try:
        return alone(count, case)
    except BrokenProcessPool as error:
        return {"operators": None, "waits": None, "uncounted": str(error)[:200]}


class Clock:
    """The least times of a step and of a training step, after two steps."""

    def __init__(self, training_step: Callable[[], None], now: Callable[[], float]) -> None:
        self.training_step, self.now = training_step, now
        self.laps = 0
        self.begun = now()
        self.seconds = self.training_seconds = math.inf

    def lap(self) -> None:
        """A step has ended."""
        ended = self.now()
        self.laps += 1
        if self.laps > 2:
            self.seconds = min(self.seconds, ended - self.begun)
            for _ in range(REPEATS):
                self.training_step()
            mean = (self.now() - ended) / REPEATS
            self.training_seconds = min(self.training_seconds, mean)
        self.begun = self.now()


def _run(
    case: Case,
    work: Workload,
    steps: int,
    training_step: Callable[[], None],
    lap: Callable[[], None],
) -> None:
    """Take the steps of a case, with a lap after each."""
    if case.way in (AUTHORS, TRAINING):
        for _ in range(steps):
            if case.way == AUTHORS:
                authors.step(work.model, work.batch, case.D, case.r)
            else:
                training_step()
            lap()
        return
    make, arguments = {**WAYS, **RIVALS}[case.way]
    settings = {"method": make(case, steps), "progress": False, **arguments, **work.arguments}
    ni.optimize(work.model, [work.batch], on_step=lambda record: lap(), **settings)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown; a training step has its seconds instead of a ratio."""
    heads = "model", "B", "D", "r", "way", "training steps", "one step in all"
    lines = [f"| {' | '.join(heads)} | operators | waits | extra MB |"]
    lines.append("|---" * (len(heads) + 3) + "|")
    for row in rows:
        cost = f"{row['training_steps']:.1f}"
        split = f"{row['D']} | {row['r']}"
        if row["way"] == TRAINING:
            cost, split = f"1 ({row['seconds']:.2f} s)", " | "
        ours = "first_steps" in row and row["way"] in WAYS
        first = f"{row['first_steps']:.1f}" if ours else ""
        counted = row.get("operators") is not None
        operators, waits = (f"{row['operators']:.1f}", row["waits"]) if counted else ("", "")
        lines.append(
            f"| {row['model']} | {row['B']} | {split} | {row['way']} | {cost} | {first} | "
            f"{operators} | {waits} | {row['extra_mb']:.0f} |"
        )
    return "\n".join(lines)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a row's case from others."""
    return tuple(row[f.name] for f in dataclasses.fields(Case))


def case_of(row: dict[str, Any]) -> Case:
    """The case that a row is of."""
    return Case(**{f.name: row[f.name] for f in dataclasses.fields(Case)})


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, or none."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Under a temporary name first."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows, indent=1) + "\n")
    temporary.replace(path)


def alone(
    function: Callable[[Any], dict[str, Any]], argument: Any, environment: Mapping[str, str] = {}
) -> dict[str, Any]:
    """The result of a function in a process of its own, for its memory and the test device."""
    with (
        mock.patch.dict(os.environ, environment),
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        return pool.submit(function, argument).result()


def main() -> None:
    """Measure what is missing; print a table, write JSON and a figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a small part, in about three minutes")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--again", default="", help="only rows with this title, a pattern")
    parser.add_argument("--threads", type=int, default=1, help="1: processor time; more: wall time")
    options = parser.parse_args()
    path = FOLDER / ("bench-quick.json" if options.quick else "bench.json")
    cases = quick() if options.quick else full()
    rows = [] if options.quick else read(path)
    done = {key(row) for row in rows}
    wanted = [c for c in cases if re.match(options.again, c.title) and not options.table]
    missing = [c for c in wanted if options.again or dataclasses.astuple(c) not in done]
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn()) as bar:
        task = bar.add_task("Measuring", total=len(missing))
        for case in missing:
            bar.update(task, description=case.title)
            found = measure(case, options.threads)
            rows = [*(row for row in rows if case_of(row) != case), found]
            write(path, rows)
            bar.advance(task)
        uncounted = [r for r in rows if case_of(r) in wanted and is_uncounted(r)]
        task = bar.add_task("Counting", total=len(uncounted))
        for row in uncounted:
            bar.update(task, description=f"Operators of {case_of(row).title}")
            row |= counted(case_of(row))
            write(path, rows)
            bar.advance(task)
    order = [dataclasses.astuple(c) for c in cases]
    rows = sorted((r for r in rows if key(r) in order), key=lambda r: order.index(key(r)))
    print(table(rows))
    page = FOLDER.parents[1] / "docs/evidence"
    draw(rows, figure := path.with_suffix(".png") if options.quick else page / "performance.png")
    print(f"\nWritten: {path} and {figure}.")


if __name__ == "__main__":
    main()
