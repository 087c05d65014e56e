"""Does the ascent of a measure make a working network blind? A Post-LN character GPT.

    python -m benchmarks.agreement.ascent run TEXT     # appends to ascent.jsonl, resumable
    python -m benchmarks.agreement.ascent table        # for docs/evidence/agreement.md

12 blocks of width 64 on windows of 64 characters. 40 steps raise a measure while the mean gradient
norm is bounded by that of the start; then AdamW at 0.001 without warmup. 3.35 is the entropy of
single characters: a network that has learned nothing about its input.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import neuroinit as ni
from benchmarks.agreement.measures import Batch, cross_entropy
from benchmarks.text.char_gpt import GPT, batches, text
from neuroinit.methods.rules import BoundedAscent, agreement, cosine, mean_norm

RESULTS = Path(__file__).with_name("ascent.jsonl")
BLOCKS, STEPS, RATE = 12, 120, 1e-3
SEEDS = range(3)
OBJECTIVES = {"as torch draws it": None, "GradCosine raised": cosine, "agreement raised": agreement}


def optimized(model: GPT, data: list[Batch], objective: Any) -> dict[str, Any]:
    """Raise an objective at the start's own gradient norm; what was measured on a batch apart."""
    own = ni.gradient_stats(model, data[-1], cross_entropy, method=ni.NIO()).norm
    rule = BoundedAscent(objective, mean_norm)
    method = ni.NIO(steps=40, lr=0.02, gamma=own, rule=rule)
    result = ni.optimize(model, data, cross_entropy, method, progress=False)
    result.apply_(model)
    sides = {"before": result.before, "after": result.after}
    told: dict[str, Any] = {
        side: [round(s.cosine, 4), round(s.agreement, 4), round(s.norm, 4)]
        for side, s in sides.items()
        if s is not None
    }
    told["scales"] = {n: round(result.scales[f"{n}.weight"], 3) for n in ("token", "place")}
    return told


def run(path: str, start: str, seed: int) -> dict[str, Any]:
    """One training."""
    torch.manual_seed(seed)
    model = GPT(text(path)[1], BLOCKS, "post")
    objective = OBJECTIVES[start]
    told = {} if objective is None else optimized(model, batches(path, 41, 1000 + seed), objective)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for x, y in batches(path, STEPS, seed):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        tested = [float(cross_entropy(model(x), y)) for x, y in batches(path, 8, 7, "test")]
    return {"start": start, "seed": seed, "test": round(statistics.mean(tested), 4), **told}


def read() -> dict[tuple[str, int], dict[str, Any]]:
    """The rows that are there."""
    rows = map(json.loads, RESULTS.read_text().splitlines() if RESULTS.exists() else [])
    return {(row["start"], row["seed"]): row for row in rows}


def lines() -> Iterator[str]:
    """One line a start: test losses, and what the ascent did."""
    rows = list(read().values())
    yield (
        "| start | test loss of each seed | GradCosine | agreement | scale of tokens | "
        "scale of positions |"
    )
    yield "|---|---|---|---|---|---|"
    for start in dict.fromkeys(row["start"] for row in rows):
        own = [row for row in rows if row["start"] == start]
        moved = [row for row in own if "after" in row]
        cells = [start, ", ".join(f"{row['test']:.2f}" for row in own)]
        for k in (0, 1):
            sides = [[row[side][k] for row in moved] for side in ("before", "after")]
            means = [f"{statistics.mean(values):.2f}" for values in sides if values]
            cells.append(" to ".join(means) or "-")
        for name in ("token", "place"):
            scales = [row["scales"][name] for row in moved]
            cells.append(f"{statistics.mean(scales):.2f}" if scales else "-")
        yield f"| {' | '.join(cells)} |"


def table() -> str:
    """For the documents."""
    return "\n".join(lines())


def main() -> None:
    """Run what is missing, or print the table."""
    if sys.argv[1] == "table":
        print(table())
        return
    torch.set_num_threads(1)
    for seed in SEEDS:
        for start in OBJECTIVES:
            if (start, seed) not in read():
                row = run(sys.argv[2], start, seed)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
