"""Which of several short trainings is the best, by validation loss.

1. A training that diverges, or that has learned nothing about its inputs, never wins.
2. If the training of the unchanged model is of this kind, the one that has learned most wins.
3. Else the training with the lowest score ``L - I`` wins.

For this comparison no training has learned more than can be learned. If losses cannot be negative,
a training can be lower than the best answer without the inputs by no more than the loss of that
answer. The least loss with the targets of other samples, ``C``, estimates it. So ``I`` becomes

    C I / (L + I),    L + I = mean_s L(x, y_s),    C = min over trainings of L + I

which is at most ``C``, and ``I`` itself if all trainings have the same ``L + I``, as in the first
steps of most networks. Without the bound, outputs that explode would win: their loss is large, and
that with the targets of other samples is larger by as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from neuroinit.run.rollout import Outcome, lead, mean

DIVERGED = 2.0  # a loss above this multiple of the first loss


@dataclass(frozen=True)
class Judge:
    """Compares short trainings of candidates with that of the model as it is.

    Args:
        start: The outcome of the model as it is.
        first_loss: Its first training loss; a training whose loss ends above twice this diverges.
        least: ``C``; ``None`` if it is not known, and what is learned has no bound.
    """

    start: Outcome
    first_loss: float
    least: float | None = None

    def among(self, outcomes: Iterable[Outcome]) -> Judge:
        """The same judge, who knows ``C`` of the start and of other trainings."""
        known = [o for o in (self.start, *outcomes) if o.learned and math.isfinite(o.loss)]
        bounded = known and min(min(o.losses) for o in known) >= 0
        return replace(
            self, least=min(o.loss + mean(o.learned) for o in known) if bounded else None
        )

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
        rank = self._least_learned if self.start_fails else self.score
        return not self.learns(outcome), rank(outcome)

    def is_ahead(self, outcome: Outcome, errors: float, least: float = 0.0) -> bool:
        """Whether the score is lower by more than ``errors`` standard errors, and than ``least``.

        Args:
            outcome: That of a candidate; it is compared with that of the start.
            errors: How many standard errors.
            least: The least difference of logarithms; of scores, if one of them is negative.
        """
        gain, noise = self.lead(outcome)
        return gain > max(errors * noise, least)

    def lead(self, outcome: Outcome) -> tuple[float, float]:
        """By how much the score is lower than that of the start, and the noise between batches."""
        return lead(self.scores(self.start), self.scores(outcome))

    def score(self, outcome: Outcome) -> float:
        """The mean of :meth:`scores`."""
        return mean(self.scores(outcome))

    def scores(self, outcome: Outcome) -> list[float]:
        """``L - I`` of every batch; the loss alone if the targets are not known."""
        if not outcome.learned or not math.isfinite(outcome.loss):
            return outcome.losses
        pairs = zip(outcome.losses, self._learned(outcome), strict=True)
        return [loss - own for loss, own in pairs]

    def _learned(self, outcome: Outcome) -> list[float]:
        """``I`` of every batch, at most ``C``."""
        if self.least is None or not math.isfinite(outcome.loss):
            return outcome.learned
        pairs = zip(outcome.losses, outcome.learned, strict=True)
        return [self.least * _share(loss, own) for loss, own in pairs]

    def _least_learned(self, outcome: Outcome) -> float:
        """Lowest for what has learned most; the loss if the targets are not known."""
        return -mean(self._learned(outcome)) if outcome.learned else outcome.loss

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


def _share(loss: float, own: float) -> float:
    """``I / (L + I)``; 1 if the loss with the targets of other samples is infinite."""
    if own == math.inf:
        return 1.0
    return own / (loss + own) if loss + own > 0 else 0.0
