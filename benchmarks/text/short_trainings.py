"""Character GPTs from several starts: test loss after 120 steps of AdamW without warmup.

    python -m benchmarks.text.short_trainings TEXT --methods "as it is" LSUV --norms post

Appends to short_trainings.jsonl, resumable. 3.35 is the entropy of single characters. The rows
``new`` of the records are those of a prototype of `CommonFactor` that is not kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from benchmarks.agreement.measures import Batch, cross_entropy
from benchmarks.text.char_gpt import GPT, batches, gpt2_rule, text

RESULTS = Path(__file__).with_name("short_trainings.jsonl")
STEPS = 120

Apply = Callable[[nn.Module, list[Batch], Any], "dict[str, Any] | None"]


def token_loss(output: Any, target: Any) -> Any:
    """The mean over samples and positions."""
    return cross_entropy(output, target)


def old_nio(model: nn.Module, data: list[Batch], make: Any) -> None:
    """The default of November 2026, with ascent of GradCosine."""
    rule = ni.HeldNorm(ascent=0.1)
    ni.nio_(model, data, token_loss, progress=False, rule=rule)


def nio(model: nn.Module, data: list[Batch], make: Any) -> None:
    """The default, without ascent."""
    ni.nio_(model, data, token_loss, progress=False)


def verified(model: nn.Module, data: list[Batch], make: Any) -> dict[str, Any]:
    """The default with the optimizer, which verifies it."""
    result = ni.nio_(model, data, token_loss, progress=False, optimizer=make)
    whole = result.verified.partition(":")[0]
    return {"applied": "none" if whole == "not applied" else whole}


def lsuv(model: nn.Module, data: list[Batch], make: Any) -> None:
    """LSUV."""
    ni.lsuv_(model, data, progress=False)


def divided(by: float, ends: tuple[str, ...] = ("weight",)) -> Apply:
    """Weights whose names end so, divided by a number; 0 for sqrt(2 L)."""

    def apply(model: nn.Module, data: list[Batch], make: Any) -> None:
        factor = by or math.sqrt(2 * len(model.blocks))
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.dim() >= 2 and name.endswith(ends):
                    p.div_(factor)

    return apply


METHODS: dict[str, Apply] = {
    "weights / 4": divided(4),
    "branch ends / sqrt(2L)": divided(0, ("out.weight", "down.weight")),
    "as it is": lambda model, data, make: None,
    "GPT-2's rule": lambda model, data, make: gpt2_rule(model),
    "NIO() of 2026-11": old_nio,
    "NIO()": nio,
    "nio_ with optimizer": verified,
    "LSUV": lsuv,
}


def run(
    path: str, method: str, norm: str, blocks: int, lr: float, seed: int, steps: int
) -> dict[str, Any]:
    """One training."""
    torch.manual_seed(seed)
    model = GPT(text(path)[1], blocks, norm)
    data = batches(path, 64, 1000 + seed)

    def make(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=lr)

    begun = time.process_time()
    told = METHODS[method](model, data, make) or {}
    seconds = time.process_time() - begun
    row = {"method": method, "norm": norm, "blocks": blocks, "lr": lr, "seed": seed, "steps": steps}
    if told.get("applied") == "none":  # the same training as from the start
        return {**row, "seconds": round(seconds, 1), "test": "as it is", **told}
    optimizer, losses = make(model.parameters()), []
    for x, y in batches(path, steps, seed):
        loss = cross_entropy(model(x), y)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tested = [float(cross_entropy(model(x), y)) for x, y in batches(path, 8, 7, "test")]
    found = {"test": round(sum(tested) / len(tested), 4), "seconds": round(seconds, 1)}
    train = {"area": round(sum(min(x, 10.0) for x in losses) / len(losses), 4)}
    return {**row, **found, **train, **copy.deepcopy(told)}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--norms", nargs="+", default=["post", "pre", "none"])
    parser.add_argument("--blocks", nargs="+", type=int, default=[12])
    parser.add_argument("--lrs", nargs="+", type=float, default=[1e-3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for seed in args.seeds:
        for norm in args.norms:
            for blocks in args.blocks:
                for lr in args.lrs:
                    for method in args.methods:
                        key = (method, norm, blocks, lr, seed, args.steps)
                        if key in done(args.results):
                            continue
                        row = run(args.path, *key)
                        with args.results.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                        print(row, flush=True)


def done(path: Path) -> set[tuple[Any, ...]]:
    """What is there."""
    rows = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    keys = ("method", "norm", "blocks", "lr", "seed", "steps")
    return {tuple(row[k] for k in keys) for row in rows}


if __name__ == "__main__":
    main()
