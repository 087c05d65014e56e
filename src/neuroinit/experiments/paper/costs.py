"""The cost of a method: time and memory of a step, measured in a process of its own."""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.memory import memory_in_use, peak_memory
from neuroinit.experiments.models import build
from neuroinit.experiments.paper.run_grid import Workspace
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.device import device
from neuroinit.experiments.training.folder.files import write_json
from neuroinit.experiments.training.initializations import draw_weights_, learned_method
from neuroinit.methods.base import Method
from neuroinit.run.optimize import optimize


@dataclass(frozen=True)
class Cost:
    """The cost of a method.

    Args:
        seconds: Median time of a step; of the only one if the method stops after it. On a CPU it is
            the processor time of all threads, so other work on the machine does not count.
        megabytes: Peak memory of the steps beyond model and data.
        training_seconds: Median time of a forward and backward pass of the same batch.
        steps: Number of steps of the method, or those taken if it stops early.
    """

    seconds: float
    megabytes: float
    training_seconds: float
    steps: int

    @property
    def training_steps(self) -> float:
        """Cost of the whole initialization, in training steps of the same batch size."""
        return self.steps * self.seconds / self.training_seconds


def cost(config: Config, workspace: Workspace, repeats: int = 2) -> Cost:
    """Measure the cost of a configuration's method, or read what was measured before.

    Args:
        config: Network, data and method.
        workspace: Where the results are kept.
        repeats: Number of steps that are timed, after one that is not.

    Raises:
        MemoryError: The process that measured was killed.
    """
    folder = workspace.out / "costs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{config.key}-{repeats}.json"
    if not path.exists():
        workspace.report(f"measuring {config.model} from {config.method}")
        arguments = (config, workspace.root, workspace.download, repeats, torch.get_num_threads())
        try:  # a process of its own, so that the peak of its memory is that of the method
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found = pool.submit(measure, *arguments).result()
        except BrokenProcessPool as error:
            raise MemoryError(
                f"The process that measured {config.method} was killed, most likely because memory "
                "ran out. A smaller `--init-batch-size` needs less."
            ) from error
        write_json(path, asdict(found))
    return Cost(**json.loads(path.read_text()))


def measure(config: Config, root: Path, download: bool, repeats: int, threads: int) -> Cost:
    """Measure in this process, with this number of threads; see :func:`cost`."""
    torch.set_num_threads(threads)
    method = learned_method(config.method)
    if not isinstance(method, Method):
        raise ValueError(f"`{config.method}` takes no steps whose cost could be measured.")
    size = config.init_size
    data = load(config.data, root, download, max(256, 4 * size), 8, config.image_size)
    torch.manual_seed(config.seed)
    model = build(config.model, data.classes).to(device())
    draw_weights_(model, config.method)
    batches = data.unaugmented(size, config.seed)
    inputs, targets = (tensor.to(device()) for tensor in next(batches))
    times = [_now()]
    short = replace(method, steps=repeats + 1, tolerance=0.0)
    before = memory_in_use(device())
    optimize(
        model,
        batches,
        F.cross_entropy,
        short,
        progress=False,
        on_step=lambda record: times.append(_now()),
    )
    megabytes = (peak_memory(device()) - before) / 2**20
    training = _training_times(model, inputs, targets, repeats)
    taken = len(times) - 1
    if taken > 1:
        del times[0]  # the first step warms up
    steps = method.steps if taken == short.steps else taken  # a method may stop early
    return Cost(_median_interval(times), megabytes, _median_interval(training), steps)


def _training_times(model: nn.Module, inputs: Tensor, targets: Tensor, repeats: int) -> list[float]:
    """The time after each of ``repeats + 1`` forward and backward passes."""
    times = []
    for _ in range(repeats + 1):
        model.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(inputs), targets))
        times.append(_now())
    return times


def _now() -> float:
    if device().type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


def _median_interval(times: list[float]) -> float:
    return statistics.median(b - a for a, b in pairwise(times))
