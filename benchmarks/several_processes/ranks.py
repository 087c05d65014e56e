"""What several processes cost: CPU time, memory and bytes on 1, 2 and 4 gloo ranks, and on paper.

    python -m benchmarks.several_processes.ranks [--paper]

Every number of ranks is one torchrun of this file. The model is a stack of linear layers; the batch
is the same on every rank, so its eight sub-batches are shared. `--paper` prints the tables of
docs/guide/several-processes.md from the constants below, without measuring.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.experiments.memory import memory_in_use, peak_memory

WIDTHS = {"1M": 500, "4M": 1000, "16M": 2000}
STEPS, BATCH, SUB_BATCHES = 4, 64, 8

# The tables on paper. A device: bfloat16 matrix products at 40% of 989 TFLOP/s, 80 GB, a ring of
# 50 GB/s a device with 30 us for each of its steps. These are assumptions; the others are measured.
FLOPS, MEMORY, BANDWIDTH, LATENCY = 0.4 * 989e12, 80e9, 50e9, 30e-6
PARAMETERS = {"10M": 1e7, "100M": 1e8, "1B": 1e9, "7B": 7e9, "70B": 7e10}
DEVICES = [1, 8, 64, 512, 4096]
TOKENS, SAMPLES, NIO_STEPS = 2048, 64, 40
PASSES = 10 / 3  # a step of `stream` in training steps: three passes, and seven with their graph
VECTORS = 14.0  # of the size of the model, in float32, that `stream` holds: measured below
STATISTICS = 4  # gradients of every sub-batch exchanged before and after: `stream` takes two rounds


def model_of(width: int) -> nn.Module:
    """Four layers."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def worker(folder: str) -> None:
    """One rank: every model, timed, and the traffic of the loopback device before and after."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), {}
    for name, width in WIDTHS.items():
        model = model_of(width)
        generator = torch.Generator().manual_seed(0)
        data = torch.randn(BATCH, width, generator=generator)
        batches = [(data, torch.randint(10, (BATCH,), generator=generator))] * 2
        dist.barrier()
        before, held = traffic(), memory_in_use()
        method = ni.NIO(steps=STEPS, sub_batches=SUB_BATCHES, tolerance=0.0)
        clock = [time.process_time()]
        ni.optimize(
            model,
            batches,
            F.cross_entropy,
            method,
            engine="stream",
            on_step=lambda _, c=clock: c.append(time.process_time()),
        )
        peak = peak_memory()
        dist.barrier()
        sent = traffic() - before
        vector = torch.zeros(sum(p.numel() for p in model.parameters()))
        found[name] = {
            "parameters": vector.numel(),
            "step": statistics.median(b - a for a, b in itertools.pairwise(clock[1:])),
            "all_reduce": median_seconds(lambda v=vector: dist.all_reduce(v)),
            "sent": sent / 4 / vector.numel(),
            "vectors": (peak - held) / 4 / vector.numel(),
        }
    found["header"] = median_seconds(lambda: dist.all_reduce(torch.zeros(3)), 50)
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def median_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Median time of a call, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def traffic() -> int:
    """Bytes that the loopback device has sent."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[8])
    return 0


def measure(world: int) -> dict[str, Any]:
    """Run the worker under torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={world}", __file__, "--worker", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment)
        found: dict[str, Any] = json.loads(Path(folder, "found.json").read_text())
        return found


def measured() -> None:
    """Print what 1, 2 and 4 ranks take, and what was expected."""
    rows = {world: measure(world) for world in (1, 2, 4)}
    print("| parameters | ranks | CPU s a step and rank | expected | all-reduce of P, s ", end="")
    print("| vectors sent in the run | expected | vectors held |")
    print("|---|---|---|---|---|---|---|---|")
    for name in WIDTHS:
        alone = rows[1][name]["step"]
        for world, found in rows.items():
            one = found[name]
            vectors = (
                (STEPS + STATISTICS * SUB_BATCHES) * 2 * (world - 1)
            )  # of a ring, by all ranks
            print(
                f"| {one['parameters'] / 1e6:.1f}M | {world} | {one['step']:.2f} "
                f"| {alone / world:.2f} | {one['all_reduce']:.3f} | {one['sent']:.1f} "
                f"| {vectors} | {one['vectors']:.1f} |"
            )
    print("\na header, ms:", {w: round(1e3 * f["header"], 2) for w, f in rows.items()})


def all_reduce(parameters: float, devices: int) -> float:
    """Seconds of a ring all-reduce of float32."""
    if devices == 1:
        return 0.0
    moved = 2 * (devices - 1) / devices * 4 * parameters
    return moved / BANDWIDTH + 2 * (devices - 1) * LATENCY


def replicated(parameters: float, devices: int) -> tuple[float, float]:
    """Seconds of all steps of NIO with the model on every device, and how much of it is talk."""
    compute = PASSES * 6 * parameters * TOKENS * SAMPLES / min(devices, SAMPLES) / FLOPS
    talk = all_reduce(parameters, devices)
    if devices > SUB_BATCHES:  # a sub-batch of several ranks is joined first
        talk += all_reduce(parameters, devices // SUB_BATCHES)
    return NIO_STEPS * (compute + talk), talk / (compute + talk)


def sharded(parameters: float, devices: int) -> tuple[float, float]:
    """The same by differences: three gradients of every sub-batch, each by all devices."""
    compute = 3 * 6 * parameters * TOKENS * SAMPLES / min(devices, SAMPLES) / FLOPS
    moved = 3 * (devices - 1) / devices * 4 * parameters / BANDWIDTH  # gather twice, scatter once
    talk = 3 * SUB_BATCHES * (moved + 3 * (devices - 1) * LATENCY)
    return NIO_STEPS * (compute + talk), talk / (compute + talk)


def paper() -> str:
    """Markdown: what the constants say of models on every device, and of sharded ones."""
    return "\n\n".join(_paper(cost) for cost in (replicated, sharded))


def _paper(cost: Callable[[float, int], tuple[float, float]]) -> str:
    lines = ["| parameters / devices | " + " | ".join(map(str, DEVICES)) + " |"]
    lines.append("|---|" + "---|" * len(DEVICES))
    for name, parameters in PARAMETERS.items():
        cells = [_cell(cost, parameters, devices) for devices in DEVICES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(cost: Callable[[float, int], tuple[float, float]], parameters: float, n: int) -> str:
    vectors = VECTORS if cost is replicated else (SUB_BATCHES + VECTORS) / n
    memory = 4 * vectors * parameters
    if memory > 0.8 * MEMORY:
        return f"{memory / 1e9:.0f} GB: no"
    seconds, talk = cost(parameters, n)
    return f"{seconds:.3g} s, {talk:.0%}, {seconds / 86400:.2%}, {memory / 1e9:.2g} GB"


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker(sys.argv[-1])
    else:
        if "--paper" not in sys.argv:
            measured()
        print(paper())
        print(f"\nSharding begins at {0.8 * MEMORY / 4 / VECTORS / 1e9:.1f} billion parameters.")
