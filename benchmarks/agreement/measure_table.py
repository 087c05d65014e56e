"""What GradCosine, the profiled cosine and the agreement say of blind, dead and other networks.

    python -m benchmarks.agreement.measure_table run TEXT   # appends to measure_table.jsonl
    python -m benchmarks.agreement.measure_table table      # for docs/evidence/agreement.md

Every measure is the mean cosine over the pairs ``i != j`` of 8 sub-batches: 1 if all gradients
point the same way, 0 if they are unrelated, -1/7 if they cancel. A row is one draw of a network:
means over four batches, and the loss after 60 steps of AdamW at 0.003.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from benchmarks.agreement.measures import (
    Batch,
    agreement,
    cross_entropy,
    entropy,
    flat,
    gradients,
    losses_of,
    twice_differentiable,
)
from benchmarks.text.char_gpt import GPT, batches, text
from benchmarks.trainability.networks.digits import NETWORKS
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import kaiming

RESULTS = Path(__file__).with_name("measure_table.jsonl")
COUNT, MEASURED, STEPS, RATE = 8, 4, 60, 3e-3
SEEDS = range(5)
MEASURES = {"cosine": "GradCosine", "profiled": "profiled", "agreement": "agreement"}
FIRST = {"mlp": "1.weight", "residual": "1.weight", "cnn": "0.weight", "gpt": "token"}
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # 95% quantiles of t for so many draws

Draw = tuple[str, str, int]  # network, state, seed


def scaled(model: nn.Module, factor: float, only: str = "") -> nn.Module:
    """Weights times a factor; those whose name has ``only``."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2 and only in name:
                p.mul_(factor)
    return model


def trained(model: nn.Module, data: list[Batch], steps: int) -> nn.Module:
    """After some steps of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for k in range(steps):
        x, y = data[k % len(data)]
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def networks(path: str) -> dict[str, tuple[str, Callable[[], nn.Module]]]:
    """A good start of every network, and which layer is its first."""
    letters = text(path)[1]
    return {
        "MLP, 10 ReLU layers": ("mlp", lambda: kaiming(NETWORKS["MLP, 10 ReLU layers"](), True)),
        "residual MLP, 10 tanh blocks": ("residual", NETWORKS["residual MLP, 10 tanh blocks"]),
        "CNN, 10 ReLU layers": ("cnn", lambda: kaiming(NETWORKS["CNN, 10 ReLU layers"](), True)),
        "GPT, 6 blocks, Post-LN": ("gpt", lambda: GPT(letters, 6, "post")),
        "GPT, 6 blocks, no normalization": ("gpt", lambda: GPT(letters, 6, "none")),
    }


STATES: dict[str, Callable[[nn.Module, str, list[Batch]], nn.Module]] = {
    "good": lambda model, first, data: model,
    "good, trained for 20 steps": lambda model, first, data: trained(model, data, 20),
    "blind (first layer / 1000)": lambda model, first, data: scaled(model, 1e-3, first),
    "dead (all weights / 5)": lambda model, first, data: scaled(model, 0.2),
    "exploding (all weights x 4)": lambda model, first, data: scaled(model, 4.0),
}


def profiled(model: nn.Module, batch: Batch) -> float:
    """The cosine of the loss at the best constant answer."""
    values = {n: p.detach().requires_grad_() for n, p in model.named_parameters()}
    with twice_differentiable():
        losses = losses_of("profiled", model, values, batch, COUNT)
        rows = [flat(g) for g in gradients(losses, list(values.values()))]
    return (COUNT * float(agreement(rows)) - 1) / (COUNT - 1)


def measured(model: nn.Module, batch: Batch) -> dict[str, float]:
    """All measures of one batch."""
    stats = ni.gradient_stats(model, batch, cross_entropy, COUNT, agreement=True)
    cosine = (COUNT * stats.cosine - 1) / (COUNT - 1)
    return {
        "cosine": cosine,
        "profiled": profiled(model, batch),
        "agreement": stats.agreement,
        "norm": stats.norm,
        "loss": stats.loss,
    }


def row(draw: Draw, path: str) -> dict[str, Any]:
    """One draw of a network in one state."""
    network, state, seed = draw
    kind, make = networks(path)[network]
    if kind == "gpt":
        data, test = batches(path, STEPS, seed), batches(path, MEASURED, 100 + seed, "held")
    else:
        data = digits().batches(STEPS, 256, seed)
        test = digits().batches(MEASURED, 256, 100 + seed)
    torch.manual_seed(seed)
    model = STATES[state](make(), FIRST[kind], data)
    found = [measured(model, batch) for batch in test]
    told = {key: statistics.mean(f[key] for f in found) for key in found[0]}
    after = trained(model, data, STEPS)
    with torch.no_grad():
        last = statistics.mean(float(cross_entropy(after(x), y)) for x, y in test)
    told["learned"] = 1 - last / entropy(torch.cat([y for _, y in test]))
    numbers = {key: float(f"{value:.4g}") for key, value in told.items()}
    return {"network": network, "state": state, "seed": seed, **numbers}


def read() -> dict[Draw, dict[str, Any]]:
    """The rows that are there."""
    if not RESULTS.exists():
        return {}
    rows = map(json.loads, RESULTS.read_text().splitlines())
    return {(r["network"], r["state"], r["seed"]): r for r in rows}


def run(path: str) -> None:
    """All draws that are missing, a seed at a time."""
    torch.set_num_threads(1)
    done = read()
    for seed in SEEDS:
        for network in networks(path):
            for state in STATES:
                if (network, state, seed) not in done:
                    told = row((network, state, seed), path)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(told) + "\n")


def interval(values: list[float]) -> str:
    """The mean of some draws and the 95% interval of that mean."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.2f} ± {half:.2f}"


def lines() -> Iterator[str]:
    """The table, a state at a time."""
    rows = list(read().values())
    head = [*MEASURES.values(), "gradient norm", "learned in 60 steps", "draws"]
    yield f"| state | network | {' | '.join(head)} |"
    yield "|---|---|" + "---|" * len(head)
    for state in STATES:
        for network in dict.fromkeys(r["network"] for r in rows):
            own = [r for r in rows if (r["state"], r["network"]) == (state, network)]
            if own:
                told = [interval([r[key] for r in own]) for key in MEASURES]
                norm = statistics.median(r["norm"] for r in own)
                learned = statistics.mean(max(0.0, r["learned"]) for r in own)
                cells = [state, network, *told, f"{norm:.2g}", f"{learned:.0%}", str(len(own))]
                yield f"| {' | '.join(cells)} |"


def table() -> str:
    """For the documents."""
    return "\n".join(lines())


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        print(table())
