"""Six ReLU layers on wine (118 samples), SGD 0.1 with momentum 0.9: how many end below 80%?

    python -m benchmarks.small_data         # appends to benchmarks/small_data.jsonl, resumable

A start that trains as it is, near the edge of what the learning rate allows.
"""

from __future__ import annotations

import copy
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

import neuroinit as ni
from benchmarks.new_default import Settings, improve_
from neuroinit.experiments.data.split import Split
from neuroinit.experiments.training.simple_loop import train

RESULTS = Path(__file__).with_name("small_data.jsonl")


def wine() -> Split:
    """Standardized."""
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    inputs, targets = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, targets = inputs[order], targets[order]
    inputs = (inputs - inputs[:118].mean(0)) / inputs[:118].std(0)
    return Split((inputs[:118], targets[:118]), (inputs[118:], targets[118:]))


def network() -> nn.Module:
    """Six hidden layers."""
    sizes = [13, *[32] * 6]
    body = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*body, nn.Linear(32, 3))


def make(parameters: Any) -> torch.optim.Optimizer:
    """The user's optimizer."""
    return SGD(parameters, lr=0.1, momentum=0.9)


METHODS: dict[str, Any] = {
    "as it is": lambda model, data: None,
    "NIO() of 2026-11": lambda model, data: ni.nio_(model, data, progress=False) and None,
    "new": lambda model, data: improve_(model, data, make),
    "new, haste 3": lambda model, data: improve_(model, data, make, Settings(haste=3.0)),
    "new, no optimizer": lambda model, data: improve_(model, data, None),
}


def main() -> None:
    """Run what is missing."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    done = {(r["method"], r["seed"]) for r in map(json.loads, lines)}
    data = wine()
    for seed in range(12):
        batches = data.batches(64, 29, 100 + seed)
        torch.manual_seed(seed)
        start = network()
        for method, apply in METHODS.items():
            if (method, seed) in done:
                continue
            model = copy.deepcopy(start)
            told = apply(model, batches)
            ends = [
                train(
                    copy.deepcopy(model), data, epochs=40, batch_size=29, seed=order, make=make
                ).accuracy
                for order in range(3)
            ]
            row = {"method": method, "seed": seed, "accuracies": [round(e, 3) for e in ends]}
            row |= told if isinstance(told, dict) else {}
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
