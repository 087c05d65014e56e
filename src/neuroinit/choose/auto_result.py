"""The result of the automatic choice: candidates, their losses, the choice and its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from neuroinit.choose.comparison_table import aligned
from neuroinit.common.sealed_json import JSON, plain
from neuroinit.gradients.statistics.gradient_stats import Record
from neuroinit.run.results.frames import records_frame
from neuroinit.run.results.reported import Reported
from neuroinit.run.results.result import Result
from neuroinit.run.results.text import cell

if TYPE_CHECKING:
    from pandas import DataFrame

START = "the start itself"


@dataclass(frozen=True)
class CandidateRecord(Record):
    """One candidate of :func:`auto_`.

    Args:
        name: The name of the candidate.
        scores: Mean validation losses, one for each round in which it was trained.
        steps: Number of training steps.
        seconds: Time to compute the candidate.
        losses: Training losses.
        failed: Why it was not trained; empty if it was.
        learned: How much higher the validation loss was with the targets of other samples, one
            number for each round; empty if the targets are not known.

    Example:
        >>> record = CandidateRecord("LSUV", scores=(2.1, 1.8), steps=40, seconds=0.2)
        >>> record.scores[-1], record.failed
        (1.8, '')
    """

    name: str
    scores: tuple[float, ...]
    steps: int
    seconds: float
    losses: tuple[float, ...] = ()
    failed: str = ""
    learned: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class AutoResult(Reported):
    """The outcome of :func:`auto_`.

    Args:
        winner: Name of the candidate that was applied; ``"the start itself"`` if none was better.
        candidates: One record per candidate.
        verdict: The reason for the choice, in one sentence.
        results: The results that were applied, in order, without statistics before and after;
            empty if the model was left alone.
        steps: Training steps of all short trainings.
        cost: Total time, in units of a training step.
        budget: Largest number of training steps of all short trainings; ``None`` if unknown.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import neuroinit as ni
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> candidates = {"LSUV": ni.LSUV()}
        >>> choice = ni.auto_(model, batches, optimizer=sgd, candidates=candidates, budget=20)
        >>> choice.winner in ("LSUV", "the start itself"), choice.steps <= 20
        (True, True)
    """

    _title: ClassVar[str] = "Choice of an initialization"

    winner: str
    candidates: list[CandidateRecord]
    verdict: str
    results: list[Result] = field(default_factory=list)
    steps: int = 0
    cost: float = math.nan
    budget: int | None = None

    def apply_(self, model: nn.Module) -> nn.Module:
        """Apply the chosen initialization to another model with the same initial values."""
        for result in self.results:
            result.apply_(model)
        return model

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The head and the lines of the table that is printed, best candidate first."""
        rounds = max((len(c.scores) for c in self.candidates), default=0)
        known = any(c.learned for c in self.candidates)
        head = ["candidate", *(f"round {k + 1}" for k in range(rounds))]
        head += ["learned"] if known else []
        lines = []
        for c in sorted(self.candidates, key=_standing):
            scores = [cell(score) for score in c.scores]
            scores += ["-"] * (rounds - len(scores))
            scores += [cell(last_learned(c))] * known
            lines.append([c.name, *scores, str(c.steps), f"{c.seconds:.1f}"])
        return [*head, "steps", "seconds to make"], lines

    def costs(self) -> str:
        """The cost and the budget, in one sentence."""
        budget = "" if self.budget is None else f" (budget: {self.budget})"
        return (
            f"Cost: the time of {self.cost:.0f} training steps; "
            f"{self.steps} of them are short trainings{budget}."
        )

    def to_dict(self) -> dict[str, JSON]:
        """The choice as plain values, ready for ``json.dumps``.

        Returns:
            All fields. Numbers that are not finite are the strings ``"nan"``, ``"inf"`` and
            ``"-inf"``.
        """
        return {
            "winner": self.winner,
            "verdict": self.verdict,
            "steps": self.steps,
            "cost": plain(self.cost),
            "budget": self.budget,
            "candidates": [plain(dict(record)) for record in self.candidates],
            "results": [result.to_dict() for result in self.results],
        }

    def frame(self) -> DataFrame:
        """The candidates as a pandas data frame, one row for each, indexed by name.

        Needs ``pip install "neuroinit[pandas]"``.
        """
        return records_frame(self.candidates, CandidateRecord, "name")

    def __repr__(self) -> str:
        table = [f"  {line}" for line in aligned(*self.rows())]
        failed = [f"  left out: {c.name} ({c.failed})" for c in self.candidates if c.failed]
        caption = ["  Loss on the validation batches after every round of short trainings:"]
        if any(c.learned for c in self.candidates):
            caption.append("  (learned: how much higher it is with the targets of other samples)")
        first = [f"{self.winner}: {self.verdict}", f"  {self.costs()}", *caption]
        return "\n".join([*first, *table, *failed])


def last_learned(record: CandidateRecord) -> float:
    """What was learned in the last round; ``nan`` if it is not known, or after a divergence."""
    known = record.learned and math.isfinite(record.scores[-1])
    return record.learned[-1] if known else math.nan


def _standing(record: CandidateRecord) -> tuple[int, float]:
    return -len(record.scores), record.scores[-1] if record.scores else math.inf
