"""The records of a comparison, and their table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, overload

from neuroinit.common.process.random_state import isolated
from neuroinit.common.sealed_json import JSON, plain
from neuroinit.gradients.statistics.gradient_stats import Record
from neuroinit.run.results.about import About
from neuroinit.run.results.frames import records_frame
from neuroinit.run.results.reported import Reported
from neuroinit.run.results.result import StepRecord
from neuroinit.run.results.text import cell

if TYPE_CHECKING:
    from pandas import DataFrame

AS_IS = "as it is"
WIDTH = 120  # of the table if it is not printed to a terminal


@dataclass(frozen=True)
class ComparisonRecord(Record):
    """One method on one seed; unknown numbers are ``nan``.

    Args:
        method: The name of the method.
        seed: The seed of the model.
        loss_before, loss: The loss before and after the method.
        cosine_before, cosine: GradCosine.
        norm_before, norm: The mean gradient norm.
        norm_ratio_before, norm_ratio: The largest gradient norm divided by the smallest.
        seconds: The time of the method.
        cost: The time of its steps, in training steps (forward and backward of a batch).
        score: The score that ``train`` returned.
        failed: Why the method failed; empty if it did not.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(2)]
        >>> (record,) = ni.compare(
        ...     lambda: torch.nn.Linear(4, 3), batches, [ni.Kaiming()], seeds=[0], show=False
        ... )
        >>> record.method, record.seed, record.failed
        ('Kaiming', 0, '')
    """

    method: str
    seed: int
    loss_before: float
    loss: float
    cosine_before: float
    cosine: float
    norm_before: float
    norm: float
    norm_ratio_before: float
    norm_ratio: float
    seconds: float
    cost: float
    score: float
    failed: str = ""


@dataclass(frozen=True)
class Curves:
    """The curves of one method on one seed.

    Args:
        history: The steps of the method.
        losses: The training losses, if ``train`` returned them.
    """

    history: tuple[StepRecord, ...] = ()
    losses: tuple[float, ...] = ()


class Comparison(Sequence[ComparisonRecord], Reported):
    """The records of :func:`compare`, one for each method and seed; printed as a table.

    Args:
        records: One for each method and seed.
        base: Name of the method that leaves every model as it is. If it is not among the methods,
            the first row of the table is for the unchanged models.
        curves: The curves of every method and seed, for :func:`neuroinit.plots.curves`.
        about: The model and the date.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import neuroinit as ni
        >>> _ = torch.manual_seed(0)
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
        >>> methods = [None, ni.Kaiming()]
        >>> table = ni.compare(lambda: nn.Linear(4, 3), batches, methods, seeds=[0, 1], show=False)
        >>> len(table), sorted(table.summary("norm"))
        (4, ['Kaiming', 'as it is'])
    """

    _title: ClassVar[str] = "Comparison of initializations"

    def __init__(
        self,
        records: Iterable[ComparisonRecord],
        base: str = AS_IS,
        curves: Mapping[tuple[str, int], Curves] | None = None,
        about: About | None = None,
    ) -> None:
        self.records, self.base = list(records), base
        self.curves, self.about = dict(curves or {}), about

    @overload
    def __getitem__(self, index: int) -> ComparisonRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ComparisonRecord]: ...
    def __getitem__(self, index: int | slice) -> ComparisonRecord | list[ComparisonRecord]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in their order."""
        return list(dict.fromkeys(record.method for record in self.records))

    def frame(self) -> DataFrame:
        """The records as a pandas data frame, one row for each method and seed.

        Needs ``pip install "neuroinit[pandas]"``.
        """
        return records_frame(self.records, ComparisonRecord)

    def to_dict(self) -> dict[str, JSON]:
        """The comparison as plain values, ready for ``json.dumps``.

        Returns:
            ``base``, ``about``, and ``records``: one dict for each method and seed, with its
            ``history`` and ``losses``. Numbers that are not finite are the strings ``"nan"``,
            ``"inf"`` and ``"-inf"``.
        """
        records = []
        for record in self.records:
            known = self.curves.get((record.method, record.seed), Curves())
            history = [dict(step) for step in known.history]
            records.append(plain({**dict(record), "history": history, "losses": known.losses}))
        about = dict(self.about) if self.about else None
        return {"base": self.base, "about": about, "records": records}

    def summary(self, column: str) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over seeds, by method; seeds without a value left out."""
        return {
            method: _mean_and_deviation(
                [r[column] for r in self.records if r.method == method and math.isfinite(r[column])]
            )
            for method in self.methods
        }

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The head and the lines of the table that is printed."""
        shown = [(c, label) for c, label in _COLUMNS if self._known(c)]
        summaries = {c: self.summary(c) for c, _ in shown}
        head = ["method", *(label for _, label in shown)]
        lines = [[m, *(_cell(*summaries[c][m]) for c, _ in shown)] for m in self.methods]
        if self.base not in self.methods:
            lines.insert(0, ["(before)", *(self._before(c) for c, _ in shown)])
        if any(record.failed for record in self.records):
            head = [*head, "failed"]
            lines = [[*line, self._failures(line[0])] for line in lines]
        return head, lines

    def print(self) -> None:
        """Print the table, with rich where it is installed."""
        with isolated():  # rich draws random numbers
            self._print()

    def _print(self) -> None:
        head, lines = self.rows()
        try:
            from rich import box
            from rich.console import Console
            from rich.table import Table
        except ModuleNotFoundError:
            print(self)
            return
        table = Table(title=self.title(), box=box.SIMPLE)
        for k, label in enumerate(head):
            table.add_column(label, justify="right" if k else "left", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        console.print(table)

    def __repr__(self) -> str:
        return "\n".join([self.title(), *aligned(*self.rows())])

    def title(self) -> str:
        """The caption of the table: how many methods and seeds."""
        methods = _counted(len(self.methods), "method")
        seeds = _counted(len({record.seed for record in self.records}), "seed")
        return f"{methods}, {seeds}: mean ± standard deviation"

    def _before(self, column: str) -> str:
        name = f"{column}_before"
        if name not in self.records[0].keys():  # noqa: SIM118
            return "-"
        return _cell(*self.summary(name)[self.methods[0]])

    def _known(self, column: str) -> bool:
        return any(math.isfinite(record[column]) for record in self.records)

    def _failures(self, method: str) -> str:
        found = [r.failed for r in self.records if r.method == method]
        return f"{sum(map(bool, found))} of {len(found)}" if any(found) else ""


_COLUMNS = (
    ("loss", "loss"),
    ("cosine", "GradCosine"),
    ("norm", "norm"),
    ("cost", "cost in steps"),
    ("score", "score"),
)


def aligned(head: list[str], lines: list[list[str]]) -> list[str]:
    """A table as lines of text: the first column on the left, numbers on the right."""
    rows = [head, *lines]
    widths = [max(len(row[k]) for row in rows) for k in range(1, len(head))]
    first = max(len(row[0]) for row in rows)
    return [
        "  ".join([f"{name:<{first}}", *(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))])
        for name, *cells in rows
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _mean_and_deviation(values: list[float]) -> tuple[float, float]:
    if not values:
        return math.nan, math.nan
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _cell(mean: float, deviation: float) -> str:
    return cell(mean) if math.isnan(mean) else f"{cell(mean, 3)} ± {cell(deviation, 2)}"
