"""Forty residual GELU blocks, SGD 0.03 with momentum 0.9, on digits: does it train after a method?

python -m benchmarks.deep_stack         # appends to benchmarks/deep_stack.jsonl, resumable
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

import neuroinit as ni
from benchmarks.new_default import improve_
from benchmarks.trainability import area
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import Residual
from neuroinit.experiments.training.simple_loop import train

RESULTS = Path(__file__).with_name("deep_stack.jsonl")


def stack(blocks: int, width: int = 64) -> nn.Module:
    """Residual blocks of two layers with a GELU between them."""
    body = [
        Residual(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)) for _ in range(blocks)
    ]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), *body, nn.Linear(width, 10))


def make(parameters: Any) -> torch.optim.Optimizer:
    """The user's optimizer."""
    return SGD(parameters, lr=0.03, momentum=0.9)


def old(model: nn.Module, data: Any) -> None:
    """The default before this work."""
    ni.nio_(model, data, progress=False)


def old_aware(model: nn.Module, data: Any) -> None:
    """The same with the optimizer."""
    ni.nio_(model, data, optimizer=make, progress=False)


METHODS: dict[str, Any] = {
    "as it is": lambda model, data: None,
    "NIO() of 2026-11": old,
    "NIO() of 2026-11, optimizer": old_aware,
    "LSUV": lambda model, data: ni.lsuv_(model, data, progress=False) and None,
    "new": lambda model, data: improve_(model, data, make),
    "new, no optimizer": lambda model, data: improve_(model, data, None),
}


def main() -> None:
    """Run what is missing."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    done = {(r["method"], r["seed"]) for r in map(json.loads, lines)}
    data = digits()
    for seed in range(3):
        batches = data.batches(64, 64, 100 + seed)
        torch.manual_seed(seed)
        start = stack(40)
        for method, apply in METHODS.items():
            if (method, seed) in done:
                continue
            model = copy.deepcopy(start)
            told = apply(model, batches)
            trained = train(model, data, epochs=6, seed=seed, make=make)
            found = {"accuracy": round(trained.accuracy, 4), "area": round(area(trained, 132), 4)}
            row = {"method": method, "seed": seed, **found}
            row |= told if isinstance(told, dict) else {}
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    main()
