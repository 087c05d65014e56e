"""Facts about a model that are found by trying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from neuroinit.common.process.random_state import GeneratorStates, seed_all

Outcome = TypeVar("Outcome")


@dataclass
class Traits:
    """Facts about a model that are found by trying; ``gradients/passes/trials.py`` has the trials.

    Args:
        independent: Whether the loss of a sample does not depend on the samples beside it: one
            answer for batches that are not ragged (``False``) and one for those that are. What was
            not tried yet is missing.
        separable: Whether one pass over several pieces can keep their gradients apart; ``None`` if
            that was not tried yet.
        targets_in_losses: Whether targets only enter loss functions of torch, see
            ``gradients/agreement.py``; ``None`` if that was not tried yet.
        draws: Whether a pass has drawn random numbers from the generators of the process.
    """

    independent: dict[bool, bool] = field(default_factory=dict)
    separable: bool | None = None
    targets_in_losses: bool | None = None
    draws: bool = False

    def repeatable(self, *runs: tuple[Callable[[], Outcome], int]) -> list[Outcome]:
        """What passes return, each with the random numbers of its seed.

        torch's generators are used by all threads of the process, so they are seeded only for
        models that draw from them. That shows in the first such pass, which is then repeated.

        Args:
            runs: Functions that run the model or the loss, and their seeds.
        """
        if not self.draws:
            before, found = GeneratorStates(), [run() for run, _ in runs]
            if not before.changed():
                return found
            del found
            self.draws = True
        return [_seeded(run, seed) for run, seed in runs]


def _seeded(run: Callable[[], Outcome], seed: int) -> Outcome:
    seed_all(seed)
    return run()
