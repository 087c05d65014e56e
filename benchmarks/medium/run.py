"""Trained to the end, small enough to repeat: every start on small networks and all of CIFAR-10.

    make medium ARGS="--data folder:CIFAR10"                        # what is missing; resumable
    make medium ARGS="--data folder:CIFAR10 --again NIO() auto_"    # these rows anew
    make medium ARGS=--table                                        # only the tables and figures

50,000 images of 16x16, SGD with momentum, epochs of 390 steps in which the learning rate falls from
0.1 to 0 by a cosine. All 10,000 test images. Jobs go seed by seed, so that
an interrupted run has all starts with fewer seeds. One line of medium.jsonl is one training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

import neuroinit as ni
from benchmarks.medium.starts import (
    BATCH,
    EPOCHS,
    NETWORKS,
    OTHER_TAU,
    RATE,
    SMOOTHED,
    SPLITS,
    STARTS,
    Job,
    jobs,
    sgd,
)
from neuroinit.common.files import replacing
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import MemoryImages, combined_seed
from neuroinit.experiments.data.split import Split
from neuroinit.experiments.models.without_batchnorm import without_batchnorm
from neuroinit.experiments.training.optimizers import take_step
from neuroinit.experiments.training.simple_loop import accuracy

RESULTS = Path(__file__).with_name("medium.jsonl")
CLIP = {"w/ BN": 0.0, "w/o BN": 1.0}  # largest gradient norm of the training, as in the paper


def images(source: str) -> Split:
    """All images of CIFAR-10, half as large, with mean 0 and variance 1 in each channel."""
    found = load(source)
    if not (isinstance(found.train, MemoryImages) and isinstance(found.test, MemoryImages)):
        raise ValueError(f"`{source}` does not fit in memory. Choose `cifar10` or a copy of it.")
    parts = [
        torch.cat([F.avg_pool2d(found.normalized(x), 2) for x in part.images.split(5000)])
        for part in (found.train, found.test)
    ]
    scale = parts[0].std()
    return Split((parts[0] / scale, found.train.targets), (parts[1] / scale, found.test.targets))


def build(job: Job) -> nn.Module:
    """The network with Kaiming's weights, the same for every start of a seed."""
    torch.manual_seed(job.seed)
    model = NETWORKS[job.network][0]()
    if job.norm == "w/o BN":
        without_batchnorm(model)
    ni.kaiming_(model)
    return model


def run(job: Job, data: Split, known: list[dict[str, Any]]) -> dict[str, Any]:
    """Initialize and train; a training that is in the records already is copied from there."""
    model = build(job)
    batches = data.batches(64, BATCH, 100 + job.seed)
    begun = time.process_time()
    told = {**STARTS, **SPLITS, **OTHER_TAU}[job.start](model, batches, job)
    seconds = time.process_time() - begun
    row = {**vars(job), **about(told), "hash": fingerprint(model), "version": repr(ni.NIO())}
    same = [r for r in known if all(r[k] == row[k] for k in ("network", "norm", "seed", "hash"))]
    same = [r for r in same if (r["start"] == "Warmup") == (job.start == "Warmup")]
    trained = {k: same[0][k] for k in TRAINED} if same else train(model, job, data)
    return {**row, **trained, "cost": round(seconds / step_time(build(job), batches))}


TRAINED = ("accuracy", "loss", "area", "curve")


def step_time(model: nn.Module, batches: Any) -> float:
    """The processor time of a training step, the mean of 20 after two."""
    optimizer, laps = sgd(model.train().parameters()), list[float]()
    for inputs, targets in islice(batches, 22):
        take_step(optimizer, F.cross_entropy(model(inputs), targets))
        laps.append(time.process_time())
    return (laps[-1] - laps[1]) / (len(laps) - 2)


def about(told: Any) -> dict[str, Any]:
    """What a method says that it did."""
    if isinstance(told, ni.AutoResult):
        return {"winner": told.winner}
    if not isinstance(told, ni.Result) or told.before is None or told.after is None:
        return {}
    pair = {
        f"gradient_{name}": [round(getattr(x, name), 4) for x in (told.before, told.after)]
        for name in ("cosine", "norm")
    }
    return {**pair, "steps": len(told.history), "verified": str(told.verified or "")}


def fingerprint(model: nn.Module) -> str:
    """A short name of the values of all parameters."""
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]


def rate(step: int, total: int, warmup: int) -> float:
    """Linear warmup, then half a cosine."""
    if step < warmup:
        return RATE * (step + 1) / warmup
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def train(model: nn.Module, job: Job, data: Split) -> dict[str, Any]:
    """Train to the end of the schedule, or to a loss that is not finite; then test."""
    model = model.to(memory_format=torch.channels_last)  # half the time for a DenseNet
    optimizer, losses = sgd(model.parameters()), list[float]()
    per_epoch = len(data.train[0]) // BATCH
    total, warmup = EPOCHS[job.network] * per_epoch, per_epoch if job.start == "Warmup" else 0
    model.train()
    for step, (inputs, targets) in enumerate(epochs(data, job)):
        set_rate(optimizer, rate(step, total, warmup))
        inputs = inputs.to(memory_format=torch.channels_last)
        loss = F.cross_entropy(model(inputs), targets)
        losses.append(take_step(optimizer, loss, model.parameters(), CLIP[job.norm]))
        if not math.isfinite(losses[-1]):
            break
    parts = [losses[k : k + SMOOTHED] for k in range(0, len(losses), SMOOTHED)]
    diverged = not math.isfinite(losses[-1])
    last = losses[-per_epoch:]
    return {
        "accuracy": round(accuracy(model, data), 4),
        "loss": None if diverged else round(sum(last) / len(last), 4),
        "area": None if diverged else round(sum(losses) / len(losses), 4),
        "curve": [round(sum(part) / len(part), 3) for part in parts],
    }


def set_rate(optimizer: Optimizer, value: float) -> None:
    """The learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = value


def epochs(data: Split, job: Job) -> Iterator[tuple[Tensor, Tensor]]:
    """All training batches, mirrored at random; the same for every start of a seed."""
    inputs, targets = data.train
    for epoch in range(EPOCHS[job.network]):
        generator = torch.Generator().manual_seed(combined_seed(job.seed, epoch))
        order = torch.randperm(len(inputs), generator=generator)
        flips = torch.rand(len(inputs), generator=generator) < 0.5
        for index in order.split(BATCH)[: len(inputs) // BATCH]:
            flip = flips[index].view(-1, 1, 1, 1)
            yield torch.where(flip, inputs[index].flip(3), inputs[index]), targets[index]


def read() -> list[dict[str, Any]]:
    """The records so far, without the end of a line that was cut off when a run was killed."""
    whole, _, _ = (RESULTS.read_text() if RESULTS.exists() else "").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def write(rows: list[dict[str, Any]]) -> None:
    """Replace the records."""
    with replacing(RESULTS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))


def fill(source: str, wanted: list[Job], again: Sequence[str] = ()) -> None:
    """Run what is missing of some jobs, and append what comes of them.

    Args:
        source: Of the images.
        wanted: The jobs.
        again: Starts of which records are forgotten; their trainings from equal weights are not.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of layers that a classic start leaves alone
    rows = read()
    kept = [row for row in rows if row["start"] not in again or _job(row) not in wanted]
    write(kept)
    done = {_job(row) for row in kept}
    data = images(source)
    for job in wanted:
        if job in done:
            continue
        rows.append(run(job, data, rows))
        with RESULTS.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(job, rows[-1]["accuracy"], rows[-1]["cost"], flush=True)


def _job(row: dict[str, Any]) -> Job:
    return Job(row["network"], row["norm"], row["start"], row["seed"])


def main() -> None:
    """Run what is missing, then print the tables and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10", help="or folder:PATH")
    parser.add_argument(
        "--only", nargs="+", default=[*STARTS, *SPLITS, *OTHER_TAU], metavar="START"
    )
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--again", nargs="+", default=[], metavar="START", help="forget these")
    args = parser.parse_args()
    if not args.table:
        chosen = [j for j in jobs() if j.start in args.only and j.network in args.networks]
        fill(args.data, chosen, args.again)
    from benchmarks.medium.tables import FIGURES, tables

    print(tables(read()))
    for draw in FIGURES.values():
        draw(read())


if __name__ == "__main__":
    main()
