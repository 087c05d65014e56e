"""A grid of runs: what is done is read, what was interrupted goes on, the rest is run."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuroinit.experiments.paper.settings import Cell
from neuroinit.experiments.training.checkpoint import Busy
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.run import Outcome
from neuroinit.experiments.training.train import train

WAIT = 10.0  # seconds between two looks at runs of other processes
Say = Callable[[str], None]
Found = dict[tuple[str, str, str], list[Outcome]]


@dataclass(frozen=True)
class Place:
    """Where runs live and data is.

    Args:
        out: Folder of runs and of what is made of them.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        say: Called with one line a run.
    """

    out: Path
    root: Path = Path("data")
    download: bool = False
    say: Say = lambda line: None


def folder_of(config: Config, place: Place) -> Path:
    """The folder of a run: readable, and another for every configuration."""
    start = config.method.partition(":")[0]
    name = re.sub(r"\W+", "-", f"{config.model} {start} {config.seed}")
    return place.out / "runs" / f"{name}-{config.key}"


def run_all(cells: Iterable[Cell], seeds: Sequence[int], place: Place) -> Found:
    """Run every cell with every seed, seed by seed, so that an early stop leaves whole tables.

    Runs that another process is at come last: by then it has done them, or has been killed.
    """
    todo = [(seed, cell) for seed in seeds for cell in cells]
    outcomes: dict[int, Outcome] = {}
    said = 0
    while left := [number for number in range(len(todo)) if number not in outcomes]:
        for number in left:
            seed, cell = todo[number]
            config = replace(cell.config, seed=seed)
            try:
                outcome = train(config, folder_of(config, place), place.root, place.download)
            except Busy:
                continue
            outcomes[number] = outcome
            place.say(
                f"{len(outcomes)}/{len(todo)}  {' '.join(filter(None, cell.place))}  "
                f"seed {seed}: {100 * outcome.accuracy:.1f} %"
            )
        missing = len(todo) - len(outcomes)
        if missing == len(left):  # all with other processes
            if missing != said:
                place.say(f"waiting for other processes: {missing} to come")
            said = missing
            time.sleep(WAIT)
    found: Found = {}
    for number, (_, cell) in enumerate(todo):
        found.setdefault(cell.place, []).append(outcomes[number])
    return found


def spread(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean and standard deviation; a run without a number makes the mean meaningless.

    Example:
        >>> spread([1.0, 2.0, 3.0]), spread([1.5]), spread([1.0, None])
        ('2.00 ± 1.00', '1.50', 'diverged 1 of 2')
    """
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    if len(numbers) < len(values):
        return f"diverged {len(values) - len(numbers)} of {len(values)}"
    mean = f"{statistics.fmean(numbers):.{digits}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.stdev(numbers):.{digits}f}"
