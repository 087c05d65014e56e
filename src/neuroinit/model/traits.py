"""A cache of the properties of a model that are found by tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from neuroinit.common.process.random_state import GeneratorStates, seed_all

Outcome = TypeVar("Outcome")


@dataclass
class Traits:
    """Properties of a model that are found by tests, see ``gradients/passes/trials.py``.

    Every test is made once for a problem, when its result is first needed, and cached here. Later
    steps only read it.

    Args:
        independent: Whether the loss of a sample does not depend on the other samples. Keys: is the
            batch ragged? A missing key was not tested yet.
        separable: Whether one pass over several pieces gives the gradient of each; ``None`` if not
            tested yet.
        targets_in_losses: Whether targets only enter loss functions of torch, see
            ``gradients/agreement.py``; ``None`` if not tested yet.
        spreadable: Whether the samples of a batch can be spread over the ranks of a sharded model;
            ``None`` if not tested yet, then they are not spread.
        draws: Whether a pass has drawn from the global random generators.
    """

    independent: dict[bool, bool] = field(default_factory=dict)
    separable: bool | None = None
    targets_in_losses: bool | None = None
    spreadable: bool | None = None
    draws: bool = False

    def repeatable(self, *runs: tuple[Callable[[], Outcome], int]) -> list[Outcome]:
        """Run passes, each with its random seed, and return their results.

        All threads of the process share torch's generators, so they are seeded only for models
        that draw from them. The first pass that draws is detected and repeated.

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
