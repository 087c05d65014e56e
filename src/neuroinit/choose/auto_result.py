"""What the automatic choice tells: who competed, at what score, who won, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import nn

from neuroinit.gradients.statistics import Record
from neuroinit.run.result import Result

START = "the start itself"
HASTE = 2.0  # of the learning rate: a winner that is worse than the start there is near divergence


@dataclass(frozen=True)
class CandidateRecord(Record):
    """How one start fared.

    ``scores`` are mean losses on the judging batches, one a round that it was in; ``hastened`` the
    one at twice the learning rate, of the best and the start; ``steps`` how far it was trained;
    ``seconds`` what it took to make; ``failed`` says why it could not be made.
    """

    name: str
    scores: tuple[float, ...]
    steps: int
    seconds: float
    losses: tuple[float, ...] = ()
    failed: str = ""
    hastened: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class AutoResult:
    """The outcome of :func:`auto_`.

    Args:
        winner: Name of the start that was applied; ``"the start itself"`` if nothing helped.
        candidates: One record for each that competed.
        verdict: Why, in one sentence.
        results: What was applied, in order; empty if the model was left alone.
        steps: Training steps of all rollouts.
        cost: Time of everything in training steps.
    """

    winner: str
    candidates: list[CandidateRecord]
    verdict: str
    results: list[Result] = field(default_factory=list)
    steps: int = 0
    cost: float = math.nan

    def apply_(self, model: nn.Module) -> nn.Module:
        """Do to another model, with the same start, what was done to the first."""
        for result in self.results:
            result.apply_(model)
        return model

    def __repr__(self) -> str:
        lines = [
            f"{self.winner}: {self.verdict}",
            f"  {self.steps} steps of rollouts; all of it cost {self.cost:.0f} training steps",
        ]
        width = max(len(c.name) for c in self.candidates)
        for c in sorted(self.candidates, key=_standing):
            scores = "  ".join(f"{s:8.4g}" for s in c.scores)
            hasty = (
                "" if c.hastened is None else f"  ({c.hastened:.4g} at {HASTE:g} times the rate)"
            )
            lines.append(f"  {c.name:<{width}}  {scores or c.failed}{hasty}")
        return "\n".join(lines)


def _standing(record: CandidateRecord) -> tuple[int, float]:
    return -len(record.scores), record.scores[-1] if record.scores else math.inf
