"""How `auto_` judges: by the loss, or by what is learned; on networks that defaults are chosen on.

    python -m benchmarks.defaults.automatic run NAME SUITE SOURCE     # appends; resumable

``NAME`` is the form of `auto_` of the present source. Cells, seeds and data are those of
:mod:`benchmarks.defaults.rates`, which has the outcome of the starts as they are. Of images only
those for training are used.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import neuroinit as ni
from benchmarks.defaults.candidates import image_cases, text_cases
from benchmarks.defaults.rates import chosen_on

RESULTS = Path(__file__).with_name("automatic.jsonl")
SEED = 6
KEYS = ("form", "suite", "network", "start", "optimizer")


def read() -> list[dict[str, Any]]:
    """All records so far."""
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def main() -> None:
    """Run what is missing."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _, form, suite, source = sys.argv[1:]
    done = {tuple(row[k] for k in KEYS) for row in read()}
    cases = text_cases(source, SEED) if suite == "text" else image_cases(suite, source, SEED)
    for case in cases:
        if case.names["network"] not in chosen_on(suite):
            continue
        for name, make in case.optimizers.items():
            row = {"form": form, **case.names, "optimizer": name}
            if tuple(row[k] for k in KEYS) in done:
                continue
            model = copy.deepcopy(case.model)
            found = ni.auto_(model, case.batches, case.loss_fn, optimizer=make, progress=False)
            row |= {"winner": found.winner, "steps": found.steps, "cost": round(found.cost)}
            with RESULTS.open("a") as file:
                file.write(json.dumps({**row, **case.end(model, make)}) + "\n")


if __name__ == "__main__":
    main()
