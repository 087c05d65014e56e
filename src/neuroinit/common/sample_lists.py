"""Decides which lists in a batch are lists of samples, and which hold tensors of all samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from neuroinit.common.batches import Batch, Data, is_dataclass_value


@dataclass(frozen=True)
class Reading:
    """Which lists in a batch are lists of samples.

    Args:
        depth: The least nesting depth of such lists; the batch has depth 0.
        kinds: The types of such lists.
        values: Whether lists and tuples of texts or numbers are lists of samples, too.
    """

    depth: int
    kinds: tuple[type, ...] = (list,)
    values: bool = False

    def takes(self, part: object, depth: int) -> bool:
        """Whether a part of a batch is a list of samples."""
        known = type(part) in self.kinds or (self.values and _are_values(part))
        return known and depth >= self.depth


LISTS, WHOLE = Reading(1), Reading(0)
READINGS = (None, LISTS, WHOLE, Reading(1, (list, tuple)))  # `None`: no lists of samples


def with_values(reading: Reading | None, batch: Batch, size: int) -> Reading | None:
    """The reading; lists of texts or numbers are samples, too, if there is one for each sample."""
    if set(_value_lists(batch, reading, 0)) != {size}:
        return reading
    return dataclasses.replace(reading or Reading(1, ()), values=True)


def record_lists(batch: Batch) -> set[str]:
    """Where a batch has lists of dicts or dataclasses, which usually are one sample each.

    ``"nested"`` for lists inside of the batch. If the batch itself is such a list, or one of
    tuples, ``"scalars"`` if an entry has numbers or names, as a sample has. ``"whole"`` if not, for
    dicts: it may be a list of samples, or of the batches of several loaders.
    """
    listed = type(batch) is list and all(is_container(entry) for entry in batch)
    if listed and any(_is_single(child) for record in batch for child in children(record)):
        return {"scalars"}
    if _are_records(batch):
        return {"whole"}
    return {"nested"} if any(map(_holds_records, children(batch))) else set()


def _holds_records(part: object) -> bool:
    return _are_records(part) or (is_container(part) and any(map(_holds_records, children(part))))


def _are_records(part: object) -> bool:
    return (
        type(part) is list
        and bool(part)
        and all(isinstance(entry, Mapping) or is_dataclass_value(entry) for entry in part)
    )


def _value_lists(part: Data, reading: Reading | None, depth: int) -> Iterator[int]:
    """Yield the lengths of the lists and tuples of values outside of lists of samples."""
    if reading is not None and reading.takes(part, depth):
        return
    if _are_values(part):
        yield len(part)
    else:
        for child in children(part):
            yield from _value_lists(child, reading, depth + 1)


def _are_values(part: Data) -> bool:
    return type(part) in (list, tuple) and bool(part) and all(map(_is_value, part))


def _is_single(part: object) -> bool:
    return _is_value(part) and not isinstance(part, bool)


def _is_value(part: object) -> bool:
    return part.ndim == 0 if isinstance(part, Tensor) else isinstance(part, (int, float, str))


def is_container(part: object) -> bool:
    """Whether this is a tuple, a list, a mapping or a dataclass value."""
    return isinstance(part, (tuple, list, Mapping)) or is_dataclass_value(part)


def children(part: Data) -> Iterator[Data]:
    """Yield the entries of a container; nothing for other values."""
    if is_dataclass_value(part):
        yield from (getattr(part, f.name) for f in dataclasses.fields(part) if f.init)
    elif isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, (tuple, list)):
        yield from part
