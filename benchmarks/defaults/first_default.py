"""The evidence behind the defaults of NIO(): small deep networks on digits, before and after.

    python -m benchmarks.defaults.first_default            # all, resumable; about half an hour
    python -m benchmarks.defaults.first_default --table    # only print the tables of what is there

A cell is a network, a seed and an optimizer; it *trains* if the test accuracy after six epochs is
at least 90%. Results are appended to benchmarks/defaults/first_default.jsonl as they come.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
from collections import defaultdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import nn

import neuroinit as ni
from benchmarks.trainability.contenders import RECORDED
from benchmarks.trainability.ideas import ClampedBiases
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import (
    kaiming,
    normalized_cnn,
    plain_cnn,
    plain_mlp,
    residual_cnn,
    residual_mlp,
)
from neuroinit.experiments.training.simple_loop import train
from neuroinit.methods.rules import BoundedAscent

RESULTS = Path(__file__).with_suffix(".jsonl")
SEEDS = range(3)
OPTIMIZERS = {"SGD 0.1": (0.1, 0.0), "SGD 0.05, momentum 0.9": (0.05, 0.9)}

NETWORKS: dict[str, Any] = {
    "residual MLP, 20 blocks": lambda: kaiming(residual_mlp(20)),
    "residual MLP, 40 blocks, GELU": lambda: kaiming(residual_mlp(40, 32, nn.GELU)),
    "residual MLP, 60 blocks, narrow": lambda: kaiming(residual_mlp(60, 24)),
    "residual MLP, 16 blocks, tanh, x3": lambda: tripled(residual_mlp(16, 48, nn.Tanh)),
    "residual CNN, 12 blocks": lambda: kaiming(residual_cnn(12)),
    "residual CNN, 20 blocks, biases": lambda: kaiming(residual_cnn(20), biases=True),
    "plain CNN, 16 layers, ELU": lambda: kaiming(plain_cnn(16, activation=nn.ELU)),
    "plain CNN, 10 layers, ReLU": lambda: kaiming(plain_cnn(10, 32)),
    "plain MLP, 8 layers, ReLU": lambda: kaiming(plain_mlp(8)),
    "plain CNN, 4 layers, torch's start": lambda: plain_cnn(4),
    "BatchNorm CNN, 8 layers, torch's start": lambda: normalized_cnn(8),
}


PAPER = {
    "rule": BoundedAscent(),
    "lr": 0.05,
    "sub_batches": 2,
    "overlap": 0.6,
}
METHODS: dict[str, dict[str, Any] | None] = {
    "as it is": None,
    "paper's form, Adam 0.05, gamma 1": {**PAPER, "gamma": 1.0},
    "paper's form, Adam 0.05, gamma 3": {**PAPER, "gamma": 3.0},
    "NIO()": {"rule": RECORDED},
    "gradients of matrices only": {
        "rule": RECORDED,
        "gradients_of": lambda module, key, tensor: tensor.dim() > 1,
    },
    "no shrinking of explosions": {"rule": ClampedBiases(ascent=0.1, shrink_above=1e30)},
    "no ascent of the cosine": {"rule": ClampedBiases()},
    "D=2, r=0.6": {"rule": RECORDED, "sub_batches": 2, "overlap": 0.6},
    "gamma 0.5 x loss": {"rule": RECORDED, "gamma": 0.5 * 2.302585},
    "gamma 2 x loss": {"rule": RECORDED, "gamma": 2.0 * 2.302585},
}


def tripled(model: nn.Module) -> nn.Module:
    """torch's own start with all weights times three."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(3)
    return model


def run(job: tuple[str, str, int]) -> list[dict[str, Any]]:
    """One network, method and seed, with every optimizer."""
    network, method, seed = job
    torch.set_num_threads(1)
    data = digits()
    torch.manual_seed(seed)
    model = NETWORKS[network]()
    row: dict[str, Any] = {"network": network, "method": method, "seed": seed}
    fields = METHODS[method]
    if fields is not None:
        try:
            result = ni.nio_(model, data.batches(40, 64, seed), progress=False, **fields)
            row |= {"seconds": sum(r.seconds for r in result.history)}
            row |= {"norm": result.after.norm if result.after else None}
        except ni.GradientError as error:
            row |= {"error": str(error)}
    rows = []
    for name, (lr, momentum) in OPTIMIZERS.items():
        trained = train(copy.deepcopy(model), data, lr=lr, momentum=momentum, seed=seed)
        capped = [min(x, 5.0) if x == x else 5.0 for x in trained.losses]
        capped += [5.0] * (132 - len(capped))
        area = sum(capped) / len(capped)
        rows.append({**row, "optimizer": name, "accuracy": trained.accuracy, "area": area})
    return rows


def read() -> list[dict[str, Any]]:
    """All results so far."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: methods, and networks from NIO() and as they are."""
    cells = {(r["method"], r["network"], r["seed"], r["optimizer"]): r for r in rows}
    by_method = defaultdict(list)
    for (method, *cell), row in cells.items():
        start = cells.get(("as it is", *cell))
        if start is not None:
            by_method[method].append((row, start))
    lines = [
        "| method | cells that train | rescued | made worse | area under the loss |",
        "|---|---|---|---|---|",
    ]
    for method in METHODS:
        pairs = by_method[method]
        if len(pairs) < len(NETWORKS) * len(SEEDS) * len(OPTIMIZERS):
            continue  # not complete yet
        good = [(row["accuracy"] >= 0.9, start["accuracy"] >= 0.9) for row, start in pairs]
        failing = sum(not s for _, s in good)
        area = sum(row["area"] for row, _ in pairs) / len(pairs)
        lines.append(
            f"| {method} | {sum(g for g, _ in good)} of {len(good)} | "
            f"{sum(g and not s for g, s in good)} of {failing} | "
            f"{sum(s and not g for g, s in good)} | {area:.2f} |"
        )
    shown = ("as it is", "paper's form, Adam 0.05, gamma 1", "NIO()")
    lines += ["", "| network | optimizer | " + " | ".join(shown) + " |", "|---" * 5 + "|"]
    for network in NETWORKS:
        for optimizer in OPTIMIZERS:
            found = [
                "  ".join(
                    f"{100 * cells[method, network, seed, optimizer]['accuracy']:.0f}"
                    for seed in SEEDS
                    if (method, network, seed, optimizer) in cells
                )
                for method in shown
            ]
            lines.append(f"| {network} | {optimizer} | " + " | ".join(found) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="only print the tables")
    if not parser.parse_args().table:
        done = {(r["network"], r["method"], r["seed"]) for r in read()}
        jobs = [(n, m, s) for m in METHODS for s in SEEDS for n in NETWORKS]
        missing = [job for job in jobs if job not in done]
        with get_context("spawn").Pool(os.cpu_count()) as pool, RESULTS.open("a") as file:
            for rows in track(pool.imap_unordered(run, missing), total=len(missing)):
                file.write("".join(json.dumps(row) + "\n" for row in rows))
                file.flush()
    print(tables(read()))


if __name__ == "__main__":
    main()
