"""The result of the automatic choice: candidates, their losses, the choice and its reason."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from neuroinit.common.files import write_text
from neuroinit.gradients.statistics import Record
from neuroinit.run.frames import records_frame
from neuroinit.run.result import Result

START = "the start itself"
HIGHER_RATE = (
    2.0  # of the learning rate: a winner that is worse than the start there is near divergence
)


@dataclass(frozen=True)
class CandidateRecord(Record):
    """One candidate of :func:`auto_`.

    Args:
        name: Its name.
        scores: Mean validation losses, one per round that it took part in.
        steps: Training steps.
        seconds: Time to make the candidate.
        losses: Training losses.
        failed: Why it could not be made; empty if it could.
        higher_rate: Validation loss at twice the learning rate; ``None`` if that was not tried.
    """

    name: str
    scores: tuple[float, ...]
    steps: int
    seconds: float
    losses: tuple[float, ...] = ()
    failed: str = ""
    higher_rate: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class AutoResult:
    """The outcome of :func:`auto_`.

    Args:
        winner: Name of the candidate that was applied; ``"the start itself"`` if none was better.
        candidates: One record per candidate.
        verdict: The reason, in one sentence.
        results: What was applied, in order; empty if the model was left alone.
        steps: Training steps of all rollouts.
        cost: Total time, in units of a training step.
        budget: Most training steps of all rollouts; ``None`` if unknown.
    """

    winner: str
    candidates: list[CandidateRecord]
    verdict: str
    results: list[Result] = field(default_factory=list)
    steps: int = 0
    cost: float = math.nan
    budget: int | None = None

    def apply_(self, model: nn.Module) -> nn.Module:
        """Do to another model, with the same start, what was done to the first."""
        for result in self.results:
            result.apply_(model)
        return model

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The head and the lines of the table that is printed, best candidate first."""
        rounds = max((len(c.scores) for c in self.candidates), default=0)
        hasty = any(c.higher_rate is not None for c in self.candidates)
        head = ["candidate", *(f"round {k + 1}" for k in range(rounds))]
        head += [f"at {HIGHER_RATE:g} x rate"] if hasty else []
        lines = []
        for c in sorted(self.candidates, key=_standing):
            scores = [_cell(score) for score in c.scores]
            scores += ["-"] * (rounds - len(scores)) + [_cell(c.higher_rate)] * hasty
            lines.append([c.name, *scores, str(c.steps), f"{c.seconds:.1f}"])
        return [*head, "steps", "made in s"], lines

    def costs(self) -> str:
        """What it cost, beside the budget, in one sentence."""
        budget = "" if self.budget is None else f" (budget: {self.budget})"
        return (
            f"Cost: the time of {self.cost:.0f} training steps; "
            f"{self.steps} of them are rollouts{budget}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The choice as plain values, ready for ``json.dumps``.

        Returns:
            All fields. Numbers that are not finite are the strings ``"nan"``, ``"inf"`` and
            ``"-inf"``.
        """
        return {
            "winner": self.winner,
            "verdict": self.verdict,
            "steps": self.steps,
            "cost": self.cost if math.isfinite(self.cost) else str(self.cost),
            "budget": self.budget,
            "candidates": [_plain(dict(record)) for record in self.candidates],
            "results": [result.to_dict() for result in self.results],
        }

    def frame(self) -> Any:
        """The candidates as a pandas data frame, one row for each, indexed by name.

        Needs ``pip install "neuroinit[pandas]"``.
        """
        return records_frame(self.candidates, CandidateRecord, "name")

    def report(
        self, path: str | os.PathLike[str], title: str = "Choice of an initialization"
    ) -> None:
        """Write a page about the choice for a browser: one file, which needs no network.

        Needs ``pip install "neuroinit[report]"``.

        Args:
            path: Where, for example ``"choice.html"``.
            title: Its heading.
        """
        from neuroinit.report import choice_page

        write_text(path, choice_page(self, title))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from neuroinit.report import choice_note

        return choice_note(self)

    def __repr__(self) -> str:
        head, lines = self.rows()
        widths = [max(len(line[k]) for line in [head, *lines]) for k in range(len(head))]
        table = []
        for name, *rest in [head, *lines]:
            cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
            table.append("  ".join([f"  {name:<{widths[0]}}", *cells]))
        failed = [f"  {c.name} failed: {c.failed}" for c in self.candidates if c.failed]
        caption = "  Loss on the judging batches after every round of rollouts:"
        first = [f"{self.winner}: {self.verdict}", f"  {self.costs()}", caption]
        return "\n".join([*first, *table, *failed])


def _standing(record: CandidateRecord) -> tuple[int, float]:
    return -len(record.scores), record.scores[-1] if record.scores else math.inf


def _cell(score: float | None) -> str:
    return "-" if score is None else f"{score:.4g}"


def _plain(value: Any) -> Any:
    """Containers of plain values, with numbers that are not finite as strings."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
