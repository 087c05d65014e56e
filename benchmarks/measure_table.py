"""What each measure of agreement says of networks that are blind, dead, exploding and good.

    python -m benchmarks.measure_table TEXT

Agreement is over distinct pairs of 8 sub-batches: 1 if all gradients point the same way, 0 if they
are unrelated, -1/7 if they cancel. Mean and standard deviation over 6 batches.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from neuroinit.experiments.demo.plain import digits
from torch import nn

from benchmarks.agreement import (
    Batch,
    agreement,
    entropy,
    flat,
    gradients,
    losses_of,
    twice_differentiable,
)
from benchmarks.char_gpt import GPT, batches, text
from benchmarks.small_networks import NETWORKS

RESULTS = Path(__file__).with_name("measure_table.jsonl")
COUNT = 8
KINDS = (("plain", 1), ("profiled", 1), ("contrast", 1), ("contrast", 4))


def multiplied(model: nn.Module, factor: float, only: str = "") -> nn.Module:
    """Weights times a factor; those whose name has ``only``."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2 and only in name:
                p.mul_(factor)
    return model


def trained(model: nn.Module, data: list[Batch], steps: int, lr: float) -> nn.Module:
    """After some steps of AdamW."""
    from benchmarks.agreement import cross_entropy

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for x, y in data[:steps]:
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def cases(path: str) -> dict[str, tuple[Callable[[], nn.Module], list[Batch]]]:
    """Networks, and six batches for each."""
    images, letters = digits().batches(30, 64, 0), text(path)[1]
    words = batches(path, 6, 0)
    mlp, cnn = "MLP, 3 ReLU layers", "CNN, 4 ReLU layers"

    def gpt(norm: str = "post") -> nn.Module:
        return GPT(letters, 12, norm)

    return {
        "MLP 3, good (torch's)": (NETWORKS[mlp], images),
        "MLP 3, good (20 steps trained)": (
            lambda: trained(NETWORKS[mlp](), images[6:], 20, 3e-3),
            images,
        ),
        "MLP 3, blind (first layer x 0.001)": (
            lambda: multiplied(NETWORKS[mlp](), 0.001, "1.weight"),
            images,
        ),
        "MLP 10 ReLU, dead (divided by 3)": (
            lambda: multiplied(NETWORKS["MLP, 10 ReLU layers"](), 1 / 3),
            images,
        ),
        "MLP 10 ReLU, torch's": (NETWORKS["MLP, 10 ReLU layers"], images),
        "residual MLP 20, exploding (times 3)": (
            lambda: multiplied(NETWORKS["residual MLP, 20 ReLU blocks"](), 3),
            images,
        ),
        "MLP 10 tanh, chaotic (times 10)": (
            lambda: multiplied(NETWORKS["MLP, 10 tanh layers"](), 10),
            images,
        ),
        "CNN 4, good (torch's)": (NETWORKS[cnn], images),
        "CNN 4, blind (first layer x 0.001)": (
            lambda: multiplied(NETWORKS[cnn](), 0.001, "0.weight"),
            images,
        ),
        "GPT Post-LN 12, good (torch's)": (gpt, words),
        "GPT Post-LN 12, blind (tokens x 0.001)": (
            lambda: multiplied(gpt(), 0.001, "token"),
            words,
        ),
        "GPT without norm 12, exploding (times 3)": (lambda: multiplied(gpt("none"), 3), words),
        "GPT Pre-LN 12, good (torch's)": (lambda: gpt("pre"), words),
    }


def row(name: str, make: Callable[[], nn.Module], data: list[Batch]) -> dict[str, object]:
    """One network."""
    torch.manual_seed(0)
    model = make()
    values = {n: p.detach().requires_grad_() for n, p in model.named_parameters()}
    told: dict[str, object] = {"network": name, "entropy": round(entropy(data[0][1]), 3)}
    for kind, shifts in KINDS:
        cosines, norms = [], []
        for batch in data[:6]:
            with twice_differentiable():
                losses = losses_of(kind, model, values, batch, COUNT, shifts)
                rows = [flat(g) for g in gradients(losses, list(values.values()))]
            cosines.append((COUNT * float(agreement(rows)) - 1) / (COUNT - 1))
            norms.append(statistics.mean(float(g.norm()) for g in rows))
            if kind == "plain":
                told["loss"] = round(float(sum(losses).detach()) / COUNT, 3)
        key = kind if kind != "contrast" else f"contrast {shifts}"
        told[key] = [round(statistics.mean(cosines), 3), round(statistics.stdev(cosines), 3)]
        told[f"{key} norm"] = float(f"{statistics.mean(norms):.3g}")
    return told


def main() -> None:
    """Print a table and keep the rows."""
    torch.set_num_threads(1)
    keys = ["plain", "profiled", "contrast 1", "contrast 4"]
    print("| network | loss |", " | ".join(keys), "| norms |")
    print("|---" * (len(keys) + 3) + "|")
    with RESULTS.open("w") as file:
        for name, (make, data) in cases(sys.argv[1]).items():
            told = row(name, make, data)
            file.write(json.dumps(told) + "\n")
            shown = " | ".join(f"{told[k][0]:.2f} ± {told[k][1]:.2f}" for k in keys)
            norms = ", ".join(f"{told[f'{k} norm']:.2g}" for k in keys[:3])
            print(f"| {name} | {told['loss']} | {shown} | {norms} |", flush=True)


if __name__ == "__main__":
    main()
