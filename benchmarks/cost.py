"""What a step of NIO costs: time in training steps, and peak extra memory, each in its own process.

    python benchmarks/cost.py

A training step is one forward and backward pass of the same batch in the same process. The network
is a CIFAR-sized residual network of 18 blocks without normalization, B = 64.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from rich.progress import track
from torch import nn

import neuroinit as ni
from neuroinit.experiments.networks import Residual, kaiming

CASES = [(2, 0.6), (4, 0.2), (8, 0.0), (16, 0.0)]
BATCH = 64


def network() -> nn.Module:
    """18 residual blocks of two 3x3 convolutions, width 16, on 32x32 images."""
    body = [
        Residual(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
        for _ in range(18)
    ]
    stem = nn.Conv2d(3, 16, 3, padding=1)
    return nn.Sequential(stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def median_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Median time of a call, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def measure(case: tuple[int, float, str] | None) -> tuple[float, float]:
    """Time in training steps and extra megabytes; of a training step itself for ``None``."""
    torch.manual_seed(0)
    model = kaiming(network())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    batch = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def training_step() -> None:
        model.zero_grad()
        F.cross_entropy(model(batch[0]), batch[1]).backward()

    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if case is None:
        seconds = median_seconds(training_step)
        extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle
        return seconds, extra / 1024
    count, overlap, engine = case
    method = ni.NIO(steps=6, sub_batches=count, overlap=overlap, gamma=1.0, tolerance=0.0)
    result = ni.optimize(model, [batch], method=method, engine=engine)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle
    step = statistics.median(record.seconds for record in result.history[1:])
    return step / median_seconds(training_step), extra / 1024


def main() -> None:
    """Print a Markdown table."""
    cases = [None, *((*case, engine) for case in CASES for engine in ("keep", "stream"))]
    found = []
    for case in track(cases):
        with get_context("spawn").Pool(1) as pool:  # a process of its own for its peak memory
            found.append(pool.map(measure, [case])[0])
    print(f"training step: {found[0][0]:.2f} s, {found[0][1]:.0f} MB\n")
    print("| D | r | engine | training steps | extra memory, MB |\n|---|---|---|---|---|")
    for case, (ratio, extra) in zip(cases[1:], found[1:], strict=True):
        print(f"| {case[0]} | {case[1]} | {case[2]} | {ratio:.1f} | {extra:.0f} |")


if __name__ == "__main__":
    main()
