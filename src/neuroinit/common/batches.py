"""Batches: nested containers of tensors, cut along dimension 0, and iteration over them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

Batch = Any  # whatever a user's loader yields: tensors in nested tuples, lists, dicts, dataclasses
Interval = tuple[int, int]  # samples ``start <= i < stop``

END = object()


class BatchStream:
    """Batches one after the other; a list or a loader starts again when it ends.

    Args:
        batches: What the user passed. A generator can be used once only.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches, self.iterator = batches, iter(batches)
        self.rounds, self.taken, self.ended = 0, 0, False

    def next(self) -> Any:
        """The next batch, or ``END`` if a generator has ended."""
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


def batch_size(batch: Batch) -> int:
    """Number of samples in a batch: the common dimension 0 of its tensors.

    Raises:
        ValueError: If the batch has no tensor with a dimension 0, or they disagree about it.
    """
    sizes: list[int] = []
    map_tensors(lambda t: sizes.append(len(t)) if t.dim() else None, batch)
    if not sizes:
        raise ValueError(
            f"A batch of type `{type(batch).__name__}` holds no tensor that could be cut along "
            "dimension 0. Yield tensors, or tuples, lists and dicts of tensors."
        )
    if len(set(sizes)) > 1:
        raise ValueError(
            f"The tensors of a batch disagree about dimension 0: found sizes {sorted(set(sizes))}. "
            "Every tensor needs one row a sample; close over the others in `compute_loss`."
        )
    if sizes[0] == 0:
        raise ValueError("A batch has no samples: dimension 0 of its tensors is 0.")
    return sizes[0]


def cut(batch: Batch, start: int, stop: int) -> Any:
    """The samples ``start`` to ``stop`` of a batch: every tensor is cut along dimension 0."""
    return map_tensors(lambda t: t[start:stop] if t.dim() else t, batch)


def map_tensors(function: Callable[[Tensor], Any], batch: Batch) -> Any:
    """Apply ``function`` to every tensor or array in nested tuples, lists, dicts, dataclasses."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item) for item in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(function, item) for item in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        values = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch) if f.init}
        changed = {name: map_tensors(function, value) for name, value in values.items()}
        return dataclasses.replace(batch, **changed)
    if isinstance(batch, Mapping):
        return _like(batch, {k: map_tensors(function, value) for k, value in batch.items()})
    if hasattr(batch, "__array__"):  # numpy's
        return function(torch.as_tensor(batch))
    return batch


def ragged(batch: Batch) -> bool:
    """Whether samples differ in how much of them counts: in zeros of a mask, or labels of -100.

    A loss that is a mean over tokens is then no mean over samples.
    """
    found: list[bool] = []

    def note(tensor: Tensor) -> None:
        if tensor.dim() and not tensor.is_floating_point() and not tensor.is_complex():
            rows = tensor.reshape(len(tensor), -1)
            mask = rows.shape[1] > 1 and bool(((rows == 0) | (rows == 1)).all())
            counts = (rows == (0 if mask else -100)).sum(1)
            found.append(bool((counts != counts[0]).any()))

    map_tensors(note, batch)
    return any(found)


def _like(original: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """The values in a mapping of the original's type, so that its attributes stay usable."""
    if type(original) is dict or not isinstance(original, MutableMapping):
        return values
    twin = copy.copy(original)
    twin.update(values)
    return twin
