"""The batches of a run: the batches of all ranks are joined, and several if they are too small."""

from __future__ import annotations

from collections.abc import Iterable

from neuroinit.common.batches import END, Batch, BatchReader
from neuroinit.common.process.signals import allowed
from neuroinit.distributed.joined_batches import union
from neuroinit.methods.base import Initialization
from neuroinit.model.problem import Problem
from neuroinit.run.loop.checkpoint import Checkpoint


class Supply:
    """Batches that are large enough for a method.

    Args:
        batches: The user's batches.
        problem: The model and its loss.
        checkpoint: Records the digest of the first batch; also has the ranks.
        skipped: Number of batches that an earlier run has used; they are read and dropped.

    Attributes:
        rounds: How often the iteration over the batches has started again.
    """

    def __init__(
        self, batches: Iterable[Batch], problem: Problem, checkpoint: Checkpoint, skipped: int
    ) -> None:
        self.reader, self.problem, self.checkpoint = BatchReader(batches), problem, checkpoint
        self.rounds = 0
        for _ in range(skipped):
            self._own()

    @property
    def taken(self) -> int:
        """The number of batches that this rank has read."""
        return self.reader.taken

    @property
    def ended(self) -> bool:
        """Whether a generator has ended."""
        return self.reader.ended

    def take(self, method: Initialization, first: bool) -> Batch:
        """The next batch, or ``END``.

        A batch that is too small is skipped, such as the last one of a data loader.

        Args:
            method: The method, which says how many samples a batch needs.
            first: Whether this is the batch of the first step.
        """
        found = self._next()
        if found is END or method.fits(self.problem, self.problem.layout.size(found)):
            return found
        return self._join(found if first else self._next(), method.least_samples, first)

    def _join(self, found: Batch, least: int, first: bool) -> Batch:
        """A batch of at least ``least`` samples, joined from several if one is too small."""
        layout, parts = self.problem.layout, [found]
        while found is not END and layout.size(found) < least:
            following = self._next()
            if following is END or (self.rounds and first):
                break  # all batches are joined already
            try:
                found = layout.join([*parts, following])
            except ValueError:  # the batches have other shapes
                return parts[0]
            parts.append(following)
            if layout.size(found) >= least:
                self.problem.warn_once(
                    f"Batches of {layout.size(parts[0])} samples are too small for {least} "
                    f"sub-batches: {len(parts)} are joined. Pass larger batches, or `sub_batches=`."
                )
        return found

    def _next(self) -> Batch:
        """The next batch of all ranks together."""
        own = self._own()
        found, self.rounds = union(
            self.checkpoint.ranks, own, self.reader.rounds, self.problem.layout
        )
        return found

    def _own(self) -> Batch:
        """The next batch of this rank."""
        with allowed():
            found = self.reader.next()
        if self.reader.taken == 1:
            self.checkpoint.identify_data(found)
        return found
