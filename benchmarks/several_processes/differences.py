"""How good `engine="differences"` is, against the exact engines.

    python -m benchmarks.several_processes.differences run    # appends to differences.jsonl
    python -m benchmarks.several_processes.differences table  # docs/guide/several-processes.md

The networks have six layers of width 128; `error` is relative to the exact derivative.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuroinit.gradients.engines import Keep
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from neuroinit.sharded.differences import Differences, _log_norm_and_cosine

RESULTS = Path(__file__).with_name("differences.jsonl")
ACTIVATIONS = {"GELU": nn.GELU, "Tanh": nn.Tanh, "ReLU": nn.ReLU}
NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
DTYPES = {"float64": torch.float64, "float32": torch.float32}
SEEDS = range(5)
Row = dict[str, Any]


def network(activation: str, norm: str) -> nn.Module:
    """Six layers of width 128, on inputs of size 64."""
    body = [
        layer
        for k in range(6)
        for layer in (
            nn.Linear(64 if k == 0 else 128, 128),
            NORMS[norm](128),
            ACTIVATIONS[activation](),
        )
    ]
    return nn.Sequential(*body, nn.Linear(128, 10))


def errors(activation: str, norm: str, dtype: str, seed: int) -> Row:
    """Relative error and cosine against the exact derivative, and the error the check sees.

    ``seen`` is ``None`` if the check refuses.
    """
    torch.manual_seed(seed)
    model = network(activation, norm).to(DTYPES[dtype])
    batch = torch.randn(64, 64, dtype=DTYPES[dtype]), torch.randint(10, (64,))
    problem = Problem(model, nn.functional.cross_entropy)
    scales = problem.unit_scales
    point, engine = problem.at(scales), Differences()
    plan = make_plan(problem, batch, 8, 0.0, "cover", "sub-batch")
    exact = Keep().derivative(point, batch, plan, _log_norm_and_cosine).gradient
    found = engine.derivative(point, batch, plan, _log_norm_and_cosine).gradient
    try:
        seen: float | None = engine.check(problem, batch, plan, scales)
    except ValueError:
        seen = None
    cosine = float(torch.cosine_similarity(found, exact, dim=0))
    case = {"activation": activation, "norm": norm, "dtype": dtype, "seed": seed}
    return {**case, "error": _relative(found, exact), "cosine": cosine, "seen": seen}


def _relative(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def table() -> str:
    """Markdown: the worst of the seeds."""
    lines = ["| network | dtype | error | cosine | seen by the check |", "|---|---|---|---|---|"]
    for activation, norm, dtype in itertools.product(ACTIVATIONS, NORMS, DTYPES):
        case = [activation, norm, dtype]
        rows = [r for r in read() if [r["activation"], r["norm"], r["dtype"]] == case]
        seen = [r["seen"] for r in rows]
        refused = seen.count(None)
        told = f"refused {refused} of {len(rows)}" if refused else f"{max(seen):.1e}"
        name = activation + ("" if norm == "none" else f", {norm} norm")
        worst = max(r["error"] for r in rows), min(r["cosine"] for r in rows)
        lines.append(f"| {name} | {dtype} | {worst[0]:.1e} | {worst[1]:.5f} | {told} |")
    return "\n".join(lines)


def read() -> list[Row]:
    """All records so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def main() -> None:
    """Measure what is missing, or print the table."""
    if sys.argv[1] == "table":
        print(table())
        return
    keys = ("activation", "norm", "dtype", "seed")
    done = {tuple(r[k] for k in keys) for r in read()} if RESULTS.exists() else set()
    for case in itertools.product(ACTIVATIONS, NORMS, DTYPES, SEEDS):
        if case not in done:
            with RESULTS.open("a") as file:
                file.write(json.dumps(errors(*case)) + "\n")


if __name__ == "__main__":
    main()
