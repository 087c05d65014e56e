"""Which numbers of a start tell whether it trains: measured on every start of the suite `digits`.

    python -m benchmarks.defaults.limits digits        # appends to limits.jsonl, resumable

Outcomes are those of `as it is` in trainability/digits.jsonl.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

from benchmarks.agreement.measures import (
    Batch,
    agreement,
    cross_entropy,
    entropy,
    flat,
    gradients,
    losses_of,
    shifted,
    twice_differentiable,
)
from benchmarks.trainability.run import BATCH, STARTS
from benchmarks.trainability.suites import SUITES

RESULTS = Path(__file__).with_name("limits.jsonl")


def features(model: nn.Module, data: list[Batch]) -> dict[str, float]:
    """Losses, sensitivities and first-order promises at a start."""
    x, y = torch.cat([b[0] for b in data]), torch.cat([b[1] for b in data])
    base = entropy(y)
    parameters = list(model.parameters())
    with twice_differentiable():
        z = model(x)
        loss = cross_entropy(z, y)
        (g,) = gradients([loss], parameters)
        contrast = cross_entropy(model(x), y) - cross_entropy(model(x), shifted(y, len(y) // 2))
        (c,) = gradients([contrast], parameters)
        values = {n: p.detach().requires_grad_() for n, p in model.named_parameters()}
        rows = [
            flat(r)
            for r in gradients(
                losses_of("contrast", model, values, (x, y), 8, 4), list(values.values())
            )
        ]
        plain = [
            flat(r)
            for r in gradients(losses_of("plain", model, values, (x, y), 8), list(values.values()))
        ]
    relative = [float(p.detach().norm() * q.norm()) for p, q in zip(parameters, c, strict=True)]
    matrices = [r for r, p in zip(relative, parameters, strict=True) if p.dim() >= 2]
    own = [
        float(p.detach().norm() * q.norm())
        for p, q in zip(parameters, g, strict=True)
        if p.dim() >= 2
    ]
    return {
        "loss": float(loss.detach()) / base,
        "norm": float(flat(g).norm()) / base,
        "l1": float(flat(g).abs().sum()) / base,
        "sum": sum(matrices) / base,
        "least": min(matrices) / base,
        "most": max(matrices) / base,
        "median": sorted(matrices)[len(matrices) // 2] / base,
        "own_least": min(own) / base,
        "own_most": max(own) / base,
        "own_sum": sum(own) / base,
        "agreement": float(agreement(rows)),
        "cosine": float(agreement(plain)),
        "spread": float(z.detach().std(0).mean()),
        "mean": float(z.detach().mean(0).std()),
    }


def main() -> None:
    """All starts that are missing."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    suite, source = SUITES[sys.argv[1]], sys.argv[2] if len(sys.argv) > 2 else ""
    done = set()
    if RESULTS.exists():
        done = {
            (r["network"], r["start"], r["seed"])
            for r in map(json.loads, RESULTS.read_text().splitlines())
        }
    data = suite.data(source)
    with RESULTS.open("a") as file:
        for seed in range(min(suite.seeds, 2)):
            batches = data.batches(64, BATCH, 100 + seed)
            for network, make in suite.networks.items():
                for start, change in STARTS.items():
                    if (network, start, seed) in done:
                        continue
                    torch.manual_seed(seed)
                    model = make()
                    change(model, batches)
                    told = {"network": network, "start": start, "seed": seed}
                    told.update(features(model, batches[:4]))
                    file.write(json.dumps(told) + "\n")
                    file.flush()


if __name__ == "__main__":
    main()
