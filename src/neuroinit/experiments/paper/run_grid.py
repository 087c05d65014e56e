"""Run the cells of a grid: complete runs are read, interrupted ones continue, others start."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuroinit.experiments.paper.grids import Cell
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.folder.files import Busy
from neuroinit.experiments.training.outcome import Outcome
from neuroinit.experiments.training.train import train

WAIT = 10.0  # seconds between two checks for runs of other processes
Outcomes = dict[tuple[str, str, str], list[Outcome]]  # position of a cell -> one per seed


@dataclass(frozen=True)
class Workspace:
    """Where runs and data are, and how progress is reported.

    Args:
        out: Folder of the runs, tables and figures.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        report: Called with one line of text per run.
    """

    out: Path
    root: Path = Path("data")
    download: bool = False
    report: Callable[[str], None] = lambda line: None


def run_folder(config: Config, workspace: Workspace) -> Path:
    """The folder of a run: model, method and seed, and the key of the configuration."""
    method = config.method.partition(":")[0]
    name = re.sub(r"\W+", "-", f"{config.model} {method} {config.seed}")
    return workspace.out / "runs" / f"{name}-{config.key}"


def run_all(cells: Iterable[Cell], seeds: Sequence[int], workspace: Workspace) -> Outcomes:
    """Run every cell with every seed.

    All cells run with the first seed, then with the second, so that an interrupted grid has a
    complete table of fewer seeds. Runs on which another process works are tried again at the end.
    """
    todo = [(seed, cell) for seed in seeds for cell in cells]
    outcomes: dict[int, Outcome] = {}
    reported = 0
    while left := [number for number in range(len(todo)) if number not in outcomes]:
        for number in left:
            seed, cell = todo[number]
            config = replace(cell.config, seed=seed)
            folder = run_folder(config, workspace)
            try:
                outcomes[number] = train(config, folder, workspace.root, workspace.download)
            except Busy:
                continue
            workspace.report(
                f"{len(outcomes)}/{len(todo)}  {' '.join(filter(None, cell.position))}  "
                f"seed {seed}: {100 * outcomes[number].accuracy:.1f} %"
            )
        missing = len(todo) - len(outcomes)
        if missing == len(left):  # other processes work on all of them
            if missing != reported:
                workspace.report(f"waiting for {missing} runs of other processes")
            reported = missing
            time.sleep(WAIT)
    found: Outcomes = {}
    for number, (_, cell) in enumerate(todo):
        found.setdefault(cell.position, []).append(outcomes[number])
    return found
