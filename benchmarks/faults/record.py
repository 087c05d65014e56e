"""The record of all faults that were tried, and the table that the documents show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.users import record as users

PATH = Path(__file__).parent / "faults.jsonl"
PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "faults.md"


@dataclass(frozen=True)
class Row:
    """One kind of fault.

    Args:
        fault: What was injected.
        where: Into what.
        tried: How often.
        good: How often it ended as promised.
        ends: How it ended, with counts.
    """

    fault: str
    where: str
    tried: int
    good: int
    ends: dict[str, int] = field(default_factory=dict)


def read() -> list[Row]:
    """The rows of the record."""
    lines = PATH.read_text().splitlines() if PATH.exists() else []
    return [Row(**json.loads(line)) for line in lines]


def add(row: Row) -> None:
    """Add a row to the record, and write the table of the page again."""
    with PATH.open("a") as record:
        record.write(json.dumps(vars(row)) + "\n")
    write_page()


def write_page() -> None:
    """Write the tables of both records into their page."""
    text = PAGE.read_text()
    for header, found in (("| fault |", table(read())), ("| what was tried |", users.table())):
        before, _, after = text.partition(header)
        rest = after[after.index("\n\n") :] if "\n\n" in after else "\n"
        text = before + found + rest
    PAGE.write_text(text)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, with the sum of all."""
    lines = ["| fault | where | tried | ended as promised |", "|---|---|---|---|"]
    lines += [f"| {r.fault} | {r.where} | {r.tried} | {r.good} |" for r in rows]
    tried, good = sum(r.tried for r in rows), sum(r.good for r in rows)
    return "\n".join([*lines, f"| all | | {tried} | {good} |"])
