"""The text suite: character GPTs over norms, depths, optimizers and warmup, from every start.

    python -m benchmarks.text.grid TEXT                      # all that is missing; resumable
    python -m benchmarks.text.grid TEXT --methods "NIO()"    # some rows
    python -m benchmarks.text.grid TEXT --again auto_        # these once more, with their costs

Pre-LN, Post-LN and no normalization; 6, 12 and 24 blocks; AdamW from 3e-4 to 1e-2 and SGD; with and
without warmup. Appends to benchmarks/text/grid.jsonl, a line a training. Jobs come in an order in
which a run that is cut off is balanced: all rows of one seed and depth before the next. Every batch
is new text, so the training loss of a step is that of text which was not trained on before.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from benchmarks.agreement.measures import Batch, cross_entropy
from benchmarks.text.char_gpt import GPT, batches, deep_norm, gpt2_rule, text
from benchmarks.trainability.ideas import ClampedBiases
from neuroinit.common.files import replacing

RESULTS = Path(__file__).with_name("grid.jsonl")
WIDTH, LENGTH, SIZE = 32, 16, 16  # of a layer, of a text, of a batch
STEPS, WARMUP = 100, 25
SMOOTHED = 10  # steps of one number of a loss curve
NORMS = ("post", "pre", "none")


def adamw(parameters: Any, rate: float) -> torch.optim.Optimizer:
    """As torch's default, but in one kernel, which is faster for many small tensors."""
    return torch.optim.AdamW(parameters, lr=rate, fused=True)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW 0.0003": lambda p: adamw(p, 3e-4),
    "AdamW 0.001": lambda p: adamw(p, 1e-3),
    "AdamW 0.003": lambda p: adamw(p, 3e-3),
    "AdamW 0.01": lambda p: adamw(p, 1e-2),
    "SGD 0.1, momentum 0.9": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}
Apply = Callable[[Any, list[Batch], Any], "dict[str, Any] | None"]


@dataclass(frozen=True)
class Row:
    """A way to start.

    Args:
        apply: ``apply(model, batches, optimizer)`` changes the model in place.
        aware: What it does depends on the optimizer.
        norms: The networks that it is defined for.
    """

    apply: Apply
    aware: bool = False
    norms: tuple[str, ...] = NORMS


def learned(method: ni.Initialization) -> Apply:
    """A method that learns scales."""

    def apply(model: nn.Module, data: list[Batch], make: Any) -> None:
        loss = None if isinstance(method, ni.LSUV) else cross_entropy
        ni.optimize(model, data, loss, method, progress=False).apply_(model)

    return apply


def with_optimizer(model: nn.Module, data: list[Batch], make: Any) -> dict[str, Any]:
    """The default with the optimizer, which verifies it."""
    result = ni.nio_(model, data, cross_entropy, progress=False, optimizer=make)
    return {"verified": result.verified}


def auto(model: nn.Module, data: list[Batch], make: Any) -> dict[str, Any]:
    """The automatic choice."""
    found = ni.auto_(model, data, cross_entropy, optimizer=make, progress=False)
    return {"winner": found.winner}


ROWS: dict[str, Row] = {
    "as it is": Row(lambda model, data, make: None),
    "GPT-2's rule": Row(lambda model, data, make: gpt2_rule(model)),
    "DeepNorm": Row(lambda model, data, make: deep_norm(model), norms=("post",)),
    "LSUV": Row(learned(ni.LSUV())),
    "GradInit": Row(learned(ni.GradInit(steps=60, lr=0.05, family="adam"))),
    "NIO.paper(steps=60)": Row(learned(ni.NIO.paper(steps=60))),
    "NIO.reference(steps=60)": Row(learned(ni.NIO.reference(steps=60))),
    "NIO() of 2026-11": Row(learned(ni.NIO(rule=ClampedBiases(ascent=0.1)))),
    "NIO()": Row(learned(ni.NIO())),
    "nio_ with optimizer": Row(with_optimizer, aware=True),
    "auto_": Row(auto, aware=True),
}
OF_THE_LIBRARY = ("NIO()", "nio_ with optimizer", "auto_")  # rows that change with its defaults

KEYS = ("seed", "blocks", "norm", "method")
Job = tuple[int, int, str, str]
TRAINED = ("test", "curve", "area")
Known = dict[tuple[Any, ...], dict[str, Any]]  # the trainings, by network, values and optimizer


def jobs(methods: list[str]) -> list[Job]:
    """In the order in which they run: 6 blocks, and 12 with Post-LN, before the rest."""
    parts = [
        [(6, norm) for norm in NORMS] + [(12, "post")],
        [(12, "pre"), (12, "none")],
        [(24, norm) for norm in NORMS],
    ]
    return [
        (seed, depth, norm, method)
        for part in parts
        for seed in range(3)
        for depth, norm in part
        for method in methods
        if norm in ROWS[method].norms
    ]


def trained(path: str, model: nn.Module, make: Any, seed: int, warmup: bool) -> dict[str, Any]:
    """The test loss at the end, the curve of the training loss, and its mean."""
    optimizer, losses = make(model.parameters()), list[float]()
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min(1.0, (k + 1) / WARMUP) if warmup else 1.0
    )
    for batch in batches(path, STEPS, seed, "train", SIZE, LENGTH):
        losses.append(step(model, batch, optimizer))
        if not math.isfinite(losses[-1]):
            break
        schedule.step()
    capped = [min(x, 10.0) if x == x else 10.0 for x in losses] + [10.0] * (STEPS - len(losses))
    parts = [capped[k : k + SMOOTHED] for k in range(0, STEPS, SMOOTHED)]
    return {
        "test": round(tested(path, model), 4),
        "curve": [round(sum(part) / SMOOTHED, 3) for part in parts],
        "area": round(sum(capped) / STEPS, 4),
    }


def step(model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
    """Take a training step; the loss before it."""
    loss = cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def tested(path: str, model: nn.Module) -> float:
    """The mean loss on texts of the test part; 100 if it is larger, or not finite."""
    test = batches(path, 16, 7, "test", 32, LENGTH)
    loss = sum(float(cross_entropy(model(x), y)) for x, y in test) / len(test)
    return loss if loss < 100 else 100.0


def run(path: str, job: Job, known: Known) -> Iterator[dict[str, Any]]:
    """One start with every optimizer and warmup; its cost is told in training steps.

    A training that is in the records already, from another row, is copied from there.
    """
    seed, blocks, norm, method = job
    data = batches(path, 64, 1000 + seed, "train", SIZE, LENGTH)
    made: tuple[nn.Module, dict[str, Any], float] | None = None
    row = dict(zip(KEYS, job, strict=True))
    for name, make in OPTIMIZERS.items():
        if made is None or ROWS[method].aware:
            torch.manual_seed(seed)
            model = GPT(text(path)[1], blocks, norm, WIDTH)
            step_seconds = step_time(copy.deepcopy(model), data, make)
            made = started(model, method, data, make)
        for warmup in (False, True):
            own = {"hash": fingerprint(made[0]), "warmup": warmup, "optimizer": name}
            key = (*job[:3], *own.values())
            found = known.get(key) or trained(path, copy.deepcopy(made[0]), make, seed, warmup)
            known[key] = found
            cost = round(made[2] / step_seconds, 1)
            yield {**row, **own, **found, **made[1], "cost": cost}


def step_time(model: nn.Module, data: list[Batch], make: Any) -> float:
    """The processor time of a training step, the mean of 20 after two."""
    optimizer = make(model.parameters())
    for batch in data[:2]:
        step(model, batch, optimizer)
    begun = time.process_time()
    for batch in data[2:22]:
        step(model, batch, optimizer)
    return (time.process_time() - begun) / 20


def started(
    model: nn.Module, method: str, data: list[Batch], make: Any
) -> tuple[nn.Module, dict[str, Any], float]:
    """The model after a method, what the method says of it, and its processor time."""
    begun = time.process_time()
    try:
        told = ROWS[method].apply(model, data, make) or {}
    except (ni.GradientError, ValueError) as error:
        told = {"error": str(error)}
    return model, told, time.process_time() - begun


def fingerprint(model: nn.Module) -> str:
    """A short name of the values of all parameters, and of the factors of skip paths."""
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    skips = str([block.skip for block in model.blocks])
    return hashlib.sha256(values.numpy().tobytes() + skips.encode()).hexdigest()[:12]


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    """All records."""
    return list(map(json.loads, path.read_text().splitlines() if path.exists() else []))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--methods", nargs="+", default=list(ROWS))
    parser.add_argument("--again", nargs="+", default=[], metavar="METHOD")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = read(args.results)
    kept = [row for row in records if row["method"] not in args.again]
    if len(kept) < len(records):
        with replacing(args.results) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in kept))
    done = {tuple(row[k] for k in KEYS) for row in kept}
    cells = (*KEYS[:3], "hash", "warmup", "optimizer")
    known = {tuple(row[k] for k in cells): {k: row[k] for k in TRAINED} for row in records}
    for job in jobs(args.methods):
        if job not in done:
            rows = list(run(args.path, job, known))
            with args.results.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
