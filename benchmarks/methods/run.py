"""Every initialization of the library on the demo's networks, for docs/evidence/methods.md.

    python -m benchmarks.methods            # all, resumable; about an hour on one core
    python -m benchmarks.methods --table    # only print the table of what is there

Learned methods start from Kaiming's weights. Six epochs of SGD 0.1 without momentum on digits; a
cell is a network and a seed, and it *trains* if the test accuracy is at least 90%. Results are
appended to benchmarks/methods/methods.jsonl as they come.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import (
    normalized_cnn,
    plain_cnn,
    plain_mlp,
    residual_cnn,
    residual_mlp,
)
from neuroinit.experiments.training.simple_loop import train
from neuroinit.methods.rules import BoundedAscent

RESULTS = Path(__file__).with_name("methods.jsonl")
SEEDS = range(3)
EPOCH = 22  # steps of 64 digits

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual MLP, 24 blocks": lambda: residual_mlp(24),
    "plain CNN, 16 ELU layers": lambda: plain_cnn(16, activation=nn.ELU),
    "residual CNN, 8 blocks": lambda: residual_cnn(8),
    "plain MLP, 10 tanh layers": lambda: plain_mlp(10, activation=nn.Tanh),
    "plain MLP, 4 ReLU layers": lambda: plain_mlp(4),
    "BatchNorm CNN, 6 layers": lambda: normalized_cnn(6),
}
METHODS: dict[str, ni.Initialization | None] = {
    "Kaiming": None,
    "Kaiming, warmup of one epoch": ni.Warmup(warmup_steps=EPOCH),
    "Xavier": ni.Xavier(),
    "orthogonal": ni.Orthogonal(),
    "truncated normal 0.02": ni.TruncNormal(),
    "LSUV": ni.LSUV(),
    "GradInit, 100 steps of 0.05": ni.GradInit(steps=100, lr=0.05),
    "MetaInit, 100 steps": ni.MetaInit(steps=100),
    "NIO, paper's form, Adam 0.05, gamma 3": ni.NIO(
        rule=BoundedAscent(), lr=0.05, sub_batches=2, overlap=0.6, gamma=3.0, steps=100
    ),
    "NIO()": ni.NIO(),
}


def start(network: str) -> nn.Module:
    """A network from Kaiming."""
    model = NETWORKS[network]()
    ni.kaiming_(model)
    return model


def run(network: str, method: str, seed: int) -> dict[str, Any]:
    """One network, method and seed."""
    data = digits()

    def score(model: nn.Module, warmup: ni.Warmup | None = None) -> float:
        schedule = warmup.schedule if warmup is not None else None
        return train(model, data, lr=0.1, seed=seed, schedule=schedule).accuracy

    (record,) = ni.compare(
        lambda: start(network),
        data.batches(101, 64, seed),
        {method: METHODS[method]},
        [seed],
        train=score,
        show=False,
        progress=False,
    )
    return {"network": network, **{k: v for k, v in dict(record).items() if v == v}}


def read() -> list[dict[str, Any]]:
    """All results so far."""
    return [json.loads(x) for x in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line a method, the mean accuracy of every network, cost in training steps."""
    names = list(NETWORKS)
    lines = [
        f"| start | {' | '.join(names)} | cells that train | cost in training steps |",
        "|---" * (len(names) + 3) + "|",
    ]
    for method in METHODS:
        mine = [r for r in rows if r["method"] == method]
        if len(mine) < len(names) * len(SEEDS):
            continue
        cells = []
        for name in names:
            found = [100 * r.get("score", 0.0) for r in mine if r["network"] == name]
            cells.append(f"{sum(found) / len(found):.0f}% ({min(found):.0f}-{max(found):.0f})")
        good = sum(r.get("score", 0.0) >= 0.9 for r in mine)
        costs = sorted(r.get("cost", 0.0) for r in mine)
        cost = costs[len(costs) // 2]
        lines.append(f"| {method} | {' | '.join(cells)} | {good} of {len(mine)} | {cost:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only print what is there")
    only = parser.parse_args().table
    torch.set_num_threads(1)
    done = {(r["network"], r["method"], r["seed"]) for r in read()}
    jobs = [(n, m, s) for s in SEEDS for m in METHODS for n in NETWORKS if (n, m, s) not in done]
    for k, job in enumerate([] if only else jobs):
        print(f"{k + 1}/{len(jobs)}  {', '.join(map(str, job))}", flush=True)
        with RESULTS.open("a") as file:
            file.write(json.dumps(run(*job)) + "\n")
    print(table(read()))


if __name__ == "__main__":
    main()
