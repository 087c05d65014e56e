"""Steps towards agreement, or one factor for every layer? Slow networks as torch draws them.

    python -m benchmarks.defaults.agreement_ascent run      # appends to agreement_ascent.jsonl
    python -m benchmarks.defaults.agreement_ascent table    # for docs/evidence/defaults.md

Five networks of the suite ``digits`` that LSUV trains better than torch's start, seed 1, of the
training images only. The ascent is 20 steps of Adam at 0.05 on the agreement; the start's own
gradient norm is its bound.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from benchmarks.defaults.layer_factors import GOOD, SUITE, data
from benchmarks.trainability.run import BATCH
from neuroinit.experiments.training.simple_loop import train
from neuroinit.methods.rules import BoundedAscent, agreement, mean_norm

RESULTS = Path(__file__).with_name("agreement_ascent.jsonl")
NETWORKS = (
    "MLP, 10 tanh layers",
    "recurrent, tanh",
    "CNN, 10 ReLU layers",
    "recurrent, LSTM",
    "CNN, 6 ReLU layers, pooled",
)
ARMS = {
    "as is": "as torch draws it",
    "agree": "20 steps towards agreement",
    "unit": "one factor a layer",
}
SEED = 1


def _applied(arm: str, model: nn.Module, batches: list[Any]) -> None:
    if arm == "unit":
        ni.lsuv_(model, batches, redraw=False, progress=False)
    elif arm == "agree":
        own = ni.gradient_stats(model, batches[-1], sub_batches=8).norm
        rule = BoundedAscent(agreement, mean_norm)
        ni.nio_(model, batches, steps=20, lr=0.05, gamma=own, rule=rule, progress=False)


def run(network: str, arm: str) -> dict[str, Any]:
    """Accuracies with every optimizer."""
    split = data()
    batches = split.batches(64, BATCH, 100 + SEED)
    torch.manual_seed(SEED)
    model = SUITE.networks[network]()
    begun = time.process_time()
    _applied(arm, model, batches)
    row: dict[str, Any] = {"arm": arm, "network": network, "seed": SEED}
    row["seconds"] = round(time.process_time() - begun, 2)
    for name, make in SUITE.optimizers.items():
        torch.manual_seed(SEED)
        options = {"epochs": SUITE.epochs, "batch_size": BATCH, "seed": SEED}
        trained = train(copy.deepcopy(model), split, **options, make_optimizer=make)
        row[name] = round(trained.accuracy, 3)
    return row


def table() -> str:
    """Markdown: accuracies in percent, a line a network."""
    rows = {(r["network"], r["arm"]): r for r in read()}
    lines = [f"| accuracy in percent | {' | '.join(ARMS.values())} |", "|---" * 4 + "|"]
    for network in NETWORKS:
        own = [[rows[network, arm][o] for o in SUITE.optimizers] for arm in ARMS]
        shown = [", ".join(f"{100 * a:.0f}" for a in accuracies) for accuracies in own]
        lines.append(f"| {network} | {' | '.join(shown)} |")
    counts = [
        sum(row[o] >= GOOD for row in rows.values() if row["arm"] == arm for o in SUITE.optimizers)
        for arm in ARMS
    ]
    total = len(NETWORKS) * len(SUITE.optimizers)
    return "\n".join([*lines, f"| train | {' | '.join(f'{c} of {total}' for c in counts)} |"])


def read() -> list[dict[str, Any]]:
    """All records so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def main() -> None:
    """Run what is missing, or print the table."""
    if sys.argv[1] == "table":
        print(table())
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["network"], r["arm"]) for r in read()} if RESULTS.exists() else set()
    for network in NETWORKS:
        for arm in ARMS:
            if (network, arm) not in done:
                with RESULTS.open("a") as file:
                    file.write(json.dumps(run(network, arm)) + "\n")


if __name__ == "__main__":
    main()
