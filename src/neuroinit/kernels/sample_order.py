"""The order of samples in packed sequences, from the calls with which a model sorts samples.

``pack_padded_sequence`` sorts samples by length. A pass over several pieces has to know which
sample a packed sequence belongs to, but recurrent layers do not receive this. So the calls that
sort or select samples are noted while the model runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ORDERING = {"sort", "argsort", "index_select", "_pack_padded_sequence"}


class SampleOrder:
    """Notes in which order samples are packed.

    The order is unknown if the model may have reordered samples by anything but the sort of the
    packed lengths. Objects are kept with their ids, so that no other object gets the id.
    """

    def __init__(self) -> None:
        self._sorts: dict[int, tuple[Tensor, Tensor]] = {}  # id of the values -> values, indices
        self._packed: dict[int, tuple[Tensor, Tensor | None]] = {}  # id of the batch sizes
        self._unknown = False

    def clear(self) -> None:
        """Forget everything, before a pass is repeated."""
        self._sorts.clear()
        self._packed.clear()
        self._unknown = False

    def note(self, name: str, args: tuple[Any, ...], found: Any) -> None:
        """Note the result of a function whose name is in ``ORDERING``."""
        if name == "sort":
            self._sorts[id(found[0])] = found[0], found[1]
        elif name == "argsort":
            self._unknown = True
        elif name == "index_select":
            self.note_index(args[-1])
        elif len(args) > 1:
            _, order = self._sorts.pop(id(args[1]), (None, None))
            if not self._unknown and not self._sorts:
                self._packed[id(found[1])] = found[1], order

    def note_index(self, index: object) -> None:
        """Note ``x[index]``, which may put samples in another order."""
        first = index[0] if isinstance(index, tuple) and index else index
        if isinstance(first, Tensor):
            self._unknown |= first.dim() > 0 and not self._is_known(first)
        else:
            self._unknown |= isinstance(first, list)

    def _is_known(self, index: Tensor) -> bool:
        """Whether an index is the order of a noted sort, or undoes it."""
        orders = [*self._sorts.values(), *self._packed.values()]
        return any(
            order is index or (order.shape == index.shape and _match(order.to(index.device), index))
            for _, order in orders
            if order is not None
        )

    def of_packed(self, batch_sizes: Tensor) -> tuple[bool, Tensor | None]:
        """Whether the order of packed samples is known, and their indices if it has changed.

        Args:
            batch_sizes: As in a ``PackedSequence``.
        """
        known = id(batch_sizes) in self._packed
        order = self._packed[id(batch_sizes)][1] if known else None
        return known, None if order is None else order.to(torch.device("cpu"))


def _match(order: Tensor, index: Tensor) -> bool:
    """Whether two permutations are the same, or one undoes the other."""
    return torch.equal(order, index) or torch.equal(order.argsort(), index)
