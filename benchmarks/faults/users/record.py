"""The record of what was tried as a new user, one line a case, and its table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

GOOD = "as promised"
PATH = Path(__file__).parent / "users.jsonl"
ITEMS = {
    1: "a loss that takes a gradient itself",
    2: "trained and loaded weights in a trainer",
    3: "a result applied twice, or to another start",
    4: "a custom function with a wrong double backward",
    5: "options of sharded models, and the memory plan",
    6: "batches of every kind",
    7: "batches of fewer than 8 samples, options of callbacks",
    8: "operators without a double backward",
    9: "complex parameters, NaN, a loss without a graph, no labels",
    10: "a loss that is zero or negative at zero output",
    11: "a bound that is exceeded or not reached",
    12: "Hugging Face: logs and losses",
    13: "the command line",
    14: "GradInit and its authors' code",
    15: "MetaInit and its paper's listing",
    16: "LSUV and its package",
    17: "FixUp and its authors' code",
}


def read() -> dict[tuple[int, str], str]:
    """Item and name of every case -> how it ended; a later line counts."""
    lines = PATH.read_text().splitlines() if PATH.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["item"], row["case"]): row["end"] for row in rows}


def add(item: int, case: str, end: str) -> None:
    """Add a case to the record."""
    with PATH.open("a") as record:
        record.write(json.dumps({"item": item, "case": case, "end": end}) + "\n")


def table() -> str:
    """The number of cases of every item as Markdown, with the sum of all."""
    rows = read()
    tried = Counter(item for item, _ in rows)
    good = Counter(item for (item, _), end in rows.items() if end == GOOD)
    lines = ["| what was tried | cases | as promised |", "|---|---|---|"]
    lines += [f"| {text} | {tried[item]} | {good[item]} |" for item, text in ITEMS.items()]
    return "\n".join([*lines, f"| all | {tried.total()} | {good.total()} |"])
