"""The user's batches, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

END = object()


class Stream:
    """The batches, again and again; an iterator can only be gone through once."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches, self.iterator = batches, iter(batches)
        self.rounds, self.taken, self.ended = 0, 0, False

    def next(self) -> Any:
        """The next batch, or ``END`` where an iterator has ended."""
        batch = next(self.iterator, END)
        if batch is END and self.taken and not isinstance(self.batches, Iterator):
            self.iterator, self.rounds = iter(self.batches), self.rounds + 1
            batch = next(self.iterator, END)
        if batch is END and not self.taken:
            raise ValueError(
                "Parameter `batches` yields nothing. Pass a DataLoader, a list of batches, or a "
                "generator that has not been used up."
            )
        self.taken += 1
        self.ended = batch is END
        return batch
