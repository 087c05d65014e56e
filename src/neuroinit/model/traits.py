"""A cache of what is found out about a model and its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from neuroinit.common.batches import Batch
from neuroinit.common.layout import BatchLayout
from neuroinit.common.process.random_state import GeneratorStates, seed_all

Outcome = TypeVar("Outcome")
Trait = Literal[
    "independent",  # the loss of a sample does not depend on the other samples
    "independent if ragged",  # the same for ragged batches
    "parameters in modules",  # the model reads its parameters as attributes of their modules
    "separable",  # one pass over several pieces gives the gradient of each
    "targets in losses",  # the targets enter loss functions of torch only
    "differentiable twice",  # the graph of a gradient can be differentiated again
    "spreadable",  # the samples of a batch can be spread over the ranks of a sharded model
]


class Traits:
    """What is found out about a model: the outcomes of tests, and how its batches are cut.

    All copies of a problem share it, see ``gradients/passes/trials.py`` for the tests.

    Args:
        layout: Where the samples are in a batch; the first batch settles what is left open.

    Attributes:
        outcomes: Whether the model has a trait; those that were not tested yet are missing.
        draws: Whether passes are seeded, because one has drawn from the global random generators.
    """

    def __init__(self, layout: BatchLayout) -> None:
        self.layout = layout
        self.outcomes: dict[Trait, bool] = {}
        self.draws = False

    def find(self, trait: Trait, test: Callable[[], bool | None]) -> bool:
        """Whether the model has a trait. It is tested once, when this is first needed.

        Args:
            trait: The name of the trait.
            test: Returns the outcome; or ``None`` if this batch cannot tell. The answer is then
                ``False``, and the next call tests again.
        """
        if trait not in self.outcomes:
            found = test()
            if found is None:
                return False
            self.note(trait, found)
        return self.outcomes[trait]

    def note(self, trait: Trait, outcome: bool) -> None:
        """Enter an outcome that is known without a test, or that a later pass has disproved."""
        self.outcomes[trait] = outcome

    @property
    def independent(self) -> bool:
        """Whether samples were found to be independent, of every kind of batch seen so far."""
        kinds: tuple[Trait, ...] = ("independent", "independent if ragged")
        found = [self.outcomes[kind] for kind in kinds if kind in self.outcomes]
        return bool(found) and all(found)

    def settle(self, batch: Batch) -> None:
        """Interpret all batches as the first one."""
        self.layout = self.layout.settled(batch)

    def seed_passes(self) -> None:
        """Seed all further passes, so that none is repeated to find out whether it draws."""
        self.draws = True

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
            self.seed_passes()
        return [_seeded(run, seed) for run, seed in runs]


def _seeded(run: Callable[[], Outcome], seed: int) -> Outcome:
    seed_all(seed)
    return run()
