"""Is it the cosine? Cells of two suites with the cosine raised, left and lowered.

    python -m benchmarks.cosine --data folder:CIFAR10    # missing records, then tables; resumable
    python -m benchmarks.cosine --table                  # only the tables

All arms start from the same weights and have the same bound. They differ from ``NIO()`` of 16
November 2026 (it raises GradCosine by small steps at the bound) in one thing. Two of the five
starts of the suites, three seeds. Records are appended to cosine.jsonl, seed by seed and suite by
suite: an interrupted run has whole networks.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import neuroinit as ni
from benchmarks.contenders import without_data
from benchmarks.ideas import ClampedBiases
from benchmarks.suites import SUITES
from benchmarks.trainability import BATCH, STARTS, area
from neuroinit.experiments.training.simple_loop import train
from neuroinit.gradients.measures import Moments
from neuroinit.methods.rules import agreement

RESULTS = Path(__file__).with_name("cosine.jsonl")
STARTED = ("times 3", "torch's")
RATES, TRIED = (1.0, 0.3, 0.1, 0.03), 100  # factors of the learning rate; steps of a trial
GAMMA = 2.303  # the bound of NIO() for ten classes: the loss of a uniform guess

Make = Callable[[Iterable[Tensor]], Optimizer]


def minus_cosine(moments: Moments) -> Tensor:
    """Ascending it lowers GradCosine."""
    return -moments.cosine


def nio(**fields: Any) -> Callable[[nn.Module, Any, Make], Make]:
    """An arm: NIO of November 2026 with other fields."""

    def arm(model: nn.Module, batches: Any, make: Make) -> Make:
        method = ni.NIO(**{"rule": ClampedBiases(ascent=0.1), **fields})
        ni.optimize(model, batches, method=method, progress=False).apply_(model)
        return make

    return arm


def one_factor(model: nn.Module, batches: Any, make: Make) -> Make:
    """All weights times one factor that brings the gradient norm to the bound; first order."""
    weights = [p for p in model.parameters() if p.dim() > 1]
    low, high, start = -5.0, 5.0, [p.detach().clone() for p in weights]
    for _ in range(12):
        middle = (low + high) / 2
        with torch.no_grad():
            for p, w in zip(weights, start, strict=True):
                p.copy_(w * 2**middle)
        try:
            norm = ni.gradient_stats(model, batches[0], sub_batches=8).norm
        except ni.GradientError:
            norm = float("inf")
        low, high = (low, middle) if norm > GAMMA else (middle, high)
    return make


def clipped(model: nn.Module, batches: Any, make: Make) -> Make:
    """The start as it is; the training clips the gradient norm at 1."""

    def made(parameters: Iterable[Tensor]) -> Optimizer:
        own = list(parameters)
        optimizer = make(own)
        optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(own, 1.0) and None)
        return optimizer

    return made


def best_rate(model: nn.Module, batches: Any, make: Make) -> Make:
    """The start as it is; the learning rate is the best of four after 100 steps, each tried."""
    losses = {factor: _tried(copy.deepcopy(model), batches, make, factor) for factor in RATES}
    return _slower(make, min(losses, key=lambda factor: losses[factor]))


def _slower(make: Make, factor: float) -> Make:
    def made(parameters: Iterable[Tensor]) -> Optimizer:
        optimizer = make(parameters)
        for group in optimizer.param_groups:
            group["lr"] *= factor
        return optimizer

    return made


def _tried(model: nn.Module, batches: Any, make: Make, factor: float) -> float:
    """Mean loss of the last steps of a short training."""
    optimizer, losses = _slower(make, factor)(model.parameters()), list[float]()
    for step in range(TRIED):
        inputs, targets = batches[step % len(batches)]
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    found = sum(losses[-20:]) / 20
    return found if found == found else float("inf")


def random_data(model: nn.Module, batches: Any, make: Make) -> Make:
    """The cosine raised on random inputs with random labels."""
    without_data(model, batches, make)
    return make


ALONE = "norm alone (cosine left)"
ARMS: dict[str, Callable[[nn.Module, Any, Make], Make]] = {
    "as it is": lambda model, batches, make: make,
    ALONE: nio(rule=ClampedBiases()),
    "cosine raised": nio(),
    "cosine lowered": nio(rule=ClampedBiases(ascent=0.1, objective=minus_cosine)),
    "one factor for all weights": one_factor,
    "clipping at 1": clipped,
    "best of four learning rates": best_rate,
    "agreement raised": nio(rule=ClampedBiases(ascent=0.1, objective=agreement)),
    "raised, random inputs and labels": random_data,
    "D = 2": nio(sub_batches=2),
    "D = 4": nio(sub_batches=4),
    "D = 32": nio(sub_batches=32),
}
OF_THE_TRAINING = ("clipping at 1", "best of four learning rates")  # they keep the start
SEEDS = 3


@dataclass(frozen=True)
class Job:
    """One network from one start by one arm."""

    suite: str
    arm: str
    network: str
    start: str
    seed: int


def run(job: Job, source: str) -> list[dict[str, Any]]:
    """Initialize, and train with every optimizer of the suite."""
    suite = SUITES[job.suite]
    data = suite.data(source)
    batches = data.batches(64, BATCH, 100 + job.seed)
    torch.manual_seed(job.seed)
    model = suite.networks[job.network]()
    STARTS[job.start](model, batches)
    arm = ARMS[job.arm]
    if job.arm not in OF_THE_TRAINING:
        arm(model, batches, SGD)
    rows = []
    for name, optimizer in suite.optimizers.items():
        own, make = copy.deepcopy(model), optimizer
        if job.arm in OF_THE_TRAINING:
            make = arm(own, batches, optimizer)
        torch.manual_seed(job.seed)  # of dropout
        trained = train(
            own, data, epochs=suite.epochs, batch_size=BATCH, seed=job.seed, make_optimizer=make
        )
        steps = suite.epochs * (len(data.train[0]) // BATCH)
        found = {"accuracy": round(trained.accuracy, 4), "area": round(area(trained, steps), 4)}
        rows.append({**vars(job), "optimizer": name, **found})
    return rows


def jobs() -> list[Job]:
    """Seed by seed, suite by suite, network by network."""
    found = []
    for seed in range(SEEDS):
        for suite in ("digits", "other"):
            networks = list(SUITES[suite].networks)
            random.Random(0).shuffle(networks)
            found += [
                Job(suite, arm, network, start, seed)
                for network in networks
                for arm in ARMS
                for start in STARTED
            ]
    return found


def read() -> list[dict[str, Any]]:
    """The records so far."""
    whole, _, _ = (RESULTS.read_text() if RESULTS.exists() else "").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10", help="or folder:PATH, of the suite `other`")
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {Job(*(row[field.name] for field in fields(Job))) for row in read()}
    for job in jobs():
        if job in done or args.table:
            continue
        rows = run(job, args.data)
        with RESULTS.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
    from benchmarks.cosine_tables import tables

    print(tables(read()))


if __name__ == "__main__":
    main()
