"""What a method costs: time and memory of a step, each measured in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F

from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.models import build
from neuroinit.experiments.paper.grid import Place
from neuroinit.experiments.training.checkpoint import write_json
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.run import device
from neuroinit.experiments.training.starts import learned, rule_
from neuroinit.methods.base import Method
from neuroinit.run.optimize import optimize


@dataclass(frozen=True)
class Cost:
    """Cost of a method.

    Args:
        seconds: Median time of one of its steps; on a CPU, processor time of all threads, so that
            other work of the machine does not count.
        megabytes: Peak memory that its steps took beyond model and data.
        training_seconds: Median time of a forward and backward pass of the same batch.
        steps: How many steps the method takes.
    """

    seconds: float
    megabytes: float
    training_seconds: float
    steps: int

    @property
    def training_steps(self) -> float:
        """Cost of the whole initialization, in training steps of the same batch size."""
        return self.steps * self.seconds / self.training_seconds


def cost(config: Config, place: Place, repeats: int = 2) -> Cost:
    """Measure the method of a configuration, or read what was measured before."""
    folder = place.out / "costs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{config.key}-{repeats}.json"
    if not path.exists():
        place.say(f"measuring {config.model} from {config.method}")
        arguments = (config, place.root, place.download, repeats, torch.get_num_threads())
        try:  # in a process of its own: its peak memory is nobody else's
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found = pool.submit(_measure, *arguments).result()
        except BrokenProcessPool as error:
            raise MemoryError(
                f"The process that measured {config.method} was killed, most likely because memory "
                "ran out. A smaller `--init-batch-size` takes less."
            ) from error
        write_json(path, asdict(found))
    return Cost(**json.loads(path.read_text()))


def _measure(config: Config, root: Path, download: bool, repeats: int, threads: int) -> Cost:
    torch.set_num_threads(threads)
    method = learned(config.method)
    if not isinstance(method, Method):
        raise ValueError(f"`{config.method}` takes no steps whose cost could be measured.")
    size = config.init_batch_size or config.batch_size
    data = load(config.data, root, download, max(256, 4 * size), 8, config.image_size)
    torch.manual_seed(config.seed)
    model = build(config.model, data.classes).to(device())
    rule_(model, config.method)
    batches = data.samples(size, config.seed)
    inputs, targets = (t.to(device()) for t in next(batches))
    stamps: list[float] = []
    short = replace(method, steps=repeats + 1, tolerance=0.0)  # the first step warms up
    idle = _used()
    optimize(
        model,
        batches,
        F.cross_entropy,
        short,
        progress=False,
        on_step=lambda record: stamps.append(_now()),
    )
    peak = _peak() - idle
    training = [_now()]
    for _ in range(repeats + 1):
        model.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        training.append(_now())
    return Cost(_median(stamps), peak / 2**20, _median(training[1:]), method.steps)


def _now() -> float:
    if device().type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


def _median(stamps: list[float]) -> float:
    """Median time between stamps."""
    return statistics.median(b - a for a, b in pairwise(stamps))


def _used() -> float:
    """Memory in use, in bytes; where the system does not tell, the highest so far."""
    if torch.cuda.is_available():
        return float(torch.cuda.memory_allocated())
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return _peak()
    return float(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> float:
    """Highest memory so far, in bytes: of the GPU if there is one, else of this process."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated())
    import resource  # Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
