"""The new default on cells of the trainability suites, paired with the records of other methods.

python -m benchmarks.new_cells digits new --half even     # appends to new_cells.jsonl, resumable
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.new_default import Settings, improve_
from benchmarks.suites import SUITES
from benchmarks.trainability import BATCH, STARTS, area
from neuroinit.experiments.training.simple_loop import train

RESULTS = Path(__file__).with_name("new_cells.jsonl")
FORMS: dict[str, tuple[Settings, bool]] = {  # settings, and whether the optimizer is known
    "new": (Settings(), True),
    "new, no optimizer": (Settings(), False),
    "new, ascent": (Settings(ascent=20), True),
    "new, ascent, no optimizer": (Settings(ascent=20), False),
}


def run(
    suite_name: str, form: str, network: str, start: str, seed: int, source: str
) -> list[dict[str, Any]]:
    """One network from one start, with every optimizer."""
    suite = SUITES[suite_name]
    data = suite.data(source)
    batches = data.batches(64, BATCH, 100 + seed)
    torch.manual_seed(seed)
    model = suite.networks[network]()
    STARTS[start](model, batches)
    settings, aware = FORMS[form]
    made, rows = None, []
    for name, optimizer in suite.optimizers.items():
        if made is None or aware:
            changed, begun = copy.deepcopy(model), time.process_time()
            told = improve_(changed, batches, optimizer if aware else None, settings)
            made = changed, {**told, "seconds": round(time.process_time() - begun, 2)}
        torch.manual_seed(seed)
        trained = train(
            copy.deepcopy(made[0]),
            data,
            epochs=suite.epochs,
            batch_size=BATCH,
            seed=seed,
            make=optimizer,
        )
        steps = suite.epochs * (len(data.train[0]) // BATCH)
        found = {"accuracy": round(trained.accuracy, 4), "area": round(area(trained, steps), 4)}
        cell = {"suite": suite_name, "method": form, "network": network, "start": start}
        rows.append({**cell, "seed": seed, "optimizer": name, **found, **made[1]})
    return rows


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite")
    parser.add_argument("form")
    parser.add_argument("--half", choices=("even", "odd", "all"), default="all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--starts", nargs="+", default=list(STARTS))
    parser.add_argument("--source", default="")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    keys = ("suite", "method", "network", "start", "seed")
    done = set()
    if args.results.exists():
        lines = args.results.read_text().splitlines()
        done = {tuple(r[k] for k in keys) for r in map(json.loads, lines)}
    networks = list(SUITES[args.suite].networks)
    chosen = {"even": networks[::2], "odd": networks[1::2], "all": networks}[args.half]
    for seed in args.seeds:
        for network in chosen:
            for start in args.starts:
                if (args.suite, args.form, network, start, seed) in done:
                    continue
                rows = run(args.suite, args.form, network, start, seed, args.source)
                with args.results.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
