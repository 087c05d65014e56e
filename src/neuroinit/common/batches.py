"""Batches: nested containers of tensors, and iteration over them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

# Users choose the types of their data, so it is `Any`: here, and under these names elsewhere.
Data = Any  # inputs, targets, outputs: tensors in nested tuples, lists, dicts, dataclasses
Batch = Data  # an element of the user's loader
Interval = tuple[int, int]  # samples ``start <= i < stop``

Key = TypeVar("Key")

END = object()  # in place of a batch: there are no more


class BatchReader:
    """Reads batches one at a time; a list or a loader starts again when it ends.

    Args:
        batches: The user's batches. A generator can be iterated over only once.

    Attributes:
        rounds: How often the iteration has started again.
        taken: Number of batches that were read.
        ended: Whether a generator has ended.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches, self.iterator = batches, iter(batches)
        self.rounds, self.taken, self.ended = 0, 0, False

    def next(self) -> Batch:
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


def map_tensors(function: Callable[[Tensor], Data], batch: Batch) -> Data:
    """Apply ``function`` to every tensor or array in nested tuples, lists, dicts, dataclasses."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, PackedSequence):
        return batch._replace(data=function(batch.data))
    if hasattr(batch, "__array__"):  # numpy's
        return function(as_tensor(batch))
    return rebuilt(batch, lambda part: map_tensors(function, part))


def as_tensor(part: Data) -> Tensor:
    """A tensor, or an array as a tensor; ``torch.as_tensor`` moves tensors to a default device."""
    return part if isinstance(part, Tensor) else torch.as_tensor(part)


def rebuilt(part: Data, function: Callable[[Data], Data]) -> Data:
    """Apply a function to every entry of a container; anything else is returned unchanged."""
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(function(item) for item in part))
    if isinstance(part, (tuple, list)):
        return type(part)(function(item) for item in part)
    if is_dataclass_value(part):
        names = [f.name for f in dataclasses.fields(part) if f.init]
        return dataclasses.replace(part, **{n: function(getattr(part, n)) for n in names})
    if isinstance(part, Mapping):
        return _like(part, {k: function(value) for k, value in part.items()})
    return part


def is_dataclass_value(part: object) -> bool:
    """Whether this is an instance of a dataclass, not the class itself."""
    return dataclasses.is_dataclass(part) and not isinstance(part, type)


def ragged(batch: Batch) -> bool:
    """Whether samples differ in the number of masked tokens: zeros of a mask, or labels of -100.

    The mean loss over tokens then differs from the mean over samples.
    """
    found: list[Tensor] = []

    def note(tensor: Tensor) -> None:
        if (
            tensor.dim()
            and not tensor.is_nested
            and not tensor.is_floating_point()
            and not tensor.is_complex()
        ):
            rows = tensor.reshape(len(tensor), -1)
            ignored = rows == -100
            if rows.shape[1] > 1:
                is_mask = ((rows == 0) | (rows == 1)).all()
                ignored = torch.where(is_mask, rows == 0, ignored)
            counts = ignored.sum(1)
            found.append((counts != counts[:1]).any())

    map_tensors(note, batch)
    return bool(found) and bool(torch.stack(found).any())  # one synchronization with the device


def moved(batch: Batch, device: torch.device) -> Batch:
    """Move the tensors of a batch to a device."""
    if isinstance(batch, PackedSequence):  # keeps lengths on the CPU; torch's type is wrong
        return batch.to(device)  # type: ignore[arg-type]
    return map_tensors(lambda t: t.to(device, non_blocking=True), batch)


def _like(original: Mapping[Key, object], values: dict[Key, object]) -> Mapping[Key, object]:
    """A mapping with these values and the type and attributes of the original."""
    if type(original) is dict or not isinstance(original, MutableMapping):
        return values
    twin = copy.copy(original)
    twin.update(values)
    return twin
