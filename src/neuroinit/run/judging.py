"""Which of several short trainings is the best, by validation loss.

1. A training that diverges, or that has learned nothing about its inputs, never wins.
2. If the training of the unchanged model is of this kind, the one that has learned most wins.
3. Else the training with the lowest score ``L - I`` wins, see :class:`Outcome`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuroinit.run.rollout import Outcome, lead, mean

DIVERGED = 2.0  # a loss above this multiple of the first loss


@dataclass(frozen=True)
class Judge:
    """Compares short trainings of candidates with that of the model as it is.

    Args:
        start: The outcome of the model as it is.
        first_loss: Its first training loss; a training whose loss ends above twice this diverges.
    """

    start: Outcome
    first_loss: float

    @property
    def start_fails(self) -> bool:
        """Whether the model as it is diverges, or learns nothing about its inputs."""
        return not self.learns(self.start)

    def learns(self, outcome: Outcome) -> bool:
        """Whether a training neither diverges nor learns nothing about its inputs."""
        return not self.diverges(outcome) and not outcome.learned_nothing

    def diverges(self, outcome: Outcome) -> bool:
        """Whether the loss is not finite, or more than twice the first one."""
        first = abs(self.first_loss) if math.isfinite(self.first_loss) else math.inf
        return not math.isfinite(outcome.loss) or outcome.loss > DIVERGED * first

    def best(self, outcomes: Mapping[str, Outcome]) -> str:
        """The name of the best outcome; empty if none learns."""
        usable = [name for name, outcome in outcomes.items() if self.learns(outcome)]
        return min(usable, key=lambda name: self.standing(outcomes[name]), default="")

    def standing(self, outcome: Outcome) -> tuple[bool, float]:
        """Lower is better: trainings that learn come first."""
        rank = _least_learned if self.start_fails else _score
        return not self.learns(outcome), rank(outcome)

    def lead(self, outcome: Outcome) -> tuple[float, float]:
        """By how much the score is lower than that of the start, and the noise between batches."""
        return lead(self.start.scores, outcome.scores)

    def of(self, outcome: Outcome) -> str:
        """Text such as ``loss 0.5``; what was learned, too, if the unchanged one learns nothing."""
        counts = outcome.learned and self.start.learned_nothing and not self.diverges(self.start)
        learned = f" (learned {mean(outcome.learned):.2g})" if counts else ""
        return f"loss {outcome.loss:.4g}{learned}"

    def of_start(self) -> str:
        """The loss of the model as it is, as text: ``reaches 0.5``, or ``diverges``."""
        if self.diverges(self.start):
            return "diverges"
        nothing = " and learns nothing about its inputs" if self.start.learned_nothing else ""
        return f"reaches {self.start.loss:.4g}{nothing}"


def _score(outcome: Outcome) -> float:
    return mean(outcome.scores)


def _least_learned(outcome: Outcome) -> float:
    """Lowest for the training that has learned most; by the loss if the targets are not known."""
    return -mean(outcome.learned) if outcome.learned else outcome.loss
