"""Do short trainings see that a start diverges after their last step?

    python -m benchmarks.defaults.late_divergence run       # appends; resumable
    python -m benchmarks.defaults.late_divergence table     # what follows

Residual perceptrons without normalization, with 12, 24 and 40 blocks and three activations, as
torch draws them, on digits, with learning rates around the limit of stability. Each is trained for
six epochs as it is, after `nio_` that trains the model as it is for as long as a candidate, and
after `nio_` that trains it on. 1,137 of the training images train, the other 300 tell the accuracy.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import neuroinit as ni
from benchmarks.defaults.layer_factors import GOOD, data
from benchmarks.trainability.run import BATCH
from neuroinit.experiments.training.simple_loop import train
from neuroinit.run import verify

RESULTS = Path(__file__).with_name("late_divergence.jsonl")
WIDTH, EPOCHS, SEEDS = 64, 6, 2
DEPTHS, ACTIVATIONS = (12, 24, 40), (nn.GELU, nn.ReLU, nn.Tanh)
OPTIMIZERS: dict[str, Callable[[Iterable[Tensor]], Optimizer]] = {
    "SGD 0.01, momentum 0.9": lambda p: SGD(p, lr=0.01, momentum=0.9),
    "SGD 0.03, momentum 0.9": lambda p: SGD(p, lr=0.03, momentum=0.9),
    "SGD 0.1, momentum 0.9": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "SGD 0.1": lambda p: SGD(p, lr=0.1),
    "AdamW 0.003": lambda p: AdamW(p, lr=3e-3),
    "AdamW 0.01": lambda p: AdamW(p, lr=1e-2),
}
KEYS = ("depth", "activation", "seed", "optimizer")
ENDS = ((0, "never"), (12, "12"), (24, "24"), (36, "36"), (10**9, "later"))
Row = dict[str, Any]


class Block(nn.Module):
    """A residual branch of two layers."""

    def __init__(self, activation: type[nn.Module]) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(WIDTH, WIDTH), activation(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """One residual sum."""
        return x + self.branch(x)


def cell(depth: int, activation: type[nn.Module], seed: int, optimizer: str) -> Row:
    """How a network ends from its start, and after `nio_` without and with further steps."""
    make, split = OPTIMIZERS[optimizer], data()
    torch.manual_seed(seed)
    blocks = [Block(activation) for _ in range(depth)]
    model = nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, WIDTH), *blocks, nn.Linear(WIDTH, 10))
    batches = split.batches(64, BATCH, 100 + seed)
    row: Row = dict(zip(KEYS, (depth, activation.__name__, seed, optimizer), strict=True))
    options = {"epochs": EPOCHS, "batch_size": BATCH, "seed": seed, "make_optimizer": make}
    own = train(copy.deepcopy(model), split, **options)
    row |= {"own": round(own.accuracy, 4), "diverged": diverged(own.losses)}
    for name, further in (("without", 0), ("with", verify.FURTHER)):
        twin = copy.deepcopy(model)
        with mock.patch.object(verify, "FURTHER", further):
            found = ni.nio_(twin, batches, F.cross_entropy, optimizer=make, progress=False)
        changed = any(scale != 1 for scale in found.scales.values())
        end = train(twin, split, **options).accuracy if changed else own.accuracy
        row |= {name: round(end, 4), f"{name} applied": found.verified}
    return row


def diverged(losses: list[float]) -> int:
    """After how many steps a loss was not finite, or above twice the first; 0 if none was."""
    bound = limit(losses[0])
    return next((k for k, loss in enumerate(losses) if not loss <= bound), 0)


def limit(first: float) -> float:
    """The loss above which a training diverges."""
    return 2 * first if math.isfinite(first) else -math.inf


def read() -> list[Row]:
    """All records so far."""
    text = RESULTS.read_text() if RESULTS.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def table() -> str:
    """Markdown: a line for each time at which starts diverge."""
    groups: dict[str, list[Row]] = {name: [] for _, name in ENDS}
    for row in read():
        groups[next(name for end, name in ENDS if row["diverged"] <= end)].append(row)
    head = "| first loss above twice the first one, steps | cells | train as they are "
    head += (
        "| after `nio_`, 12 steps | after `nio_`, on to 24 or 36 | made worse, 12 | made worse |"
    )
    lines = [head, "|---" * 7 + "|"]
    for name, rows in [*groups.items(), ("all", read())]:
        counts = Counter(
            arm for row in rows for arm in ("own", "without", "with") if row[arm] >= GOOD
        )
        worse = [sum(r["own"] >= GOOD > r[arm] for r in rows) for arm in ("without", "with")]
        numbers = [len(rows), counts["own"], counts["without"], counts["with"], *worse]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, or print the table."""
    if sys.argv[1] == "table":
        print(table())
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {tuple(row[k] for k in KEYS) for row in read()}
    for seed, depth, activation, name in itertools.product(
        range(SEEDS), DEPTHS, ACTIVATIONS, OPTIMIZERS
    ):
        if (depth, activation.__name__, seed, name) not in done:
            row = cell(depth, activation, seed, name)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
