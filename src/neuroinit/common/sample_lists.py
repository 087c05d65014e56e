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
    """

    depth: int
    kinds: tuple[type, ...] = (list,)

    def takes(self, part: object, depth: int) -> bool:
        """Whether a part of a batch is a list of samples."""
        return depth >= self.depth and type(part) in self.kinds


LISTS, WHOLE = Reading(1), Reading(0)
READINGS = (None, LISTS, WHOLE, Reading(1, (list, tuple)))  # `None`: no lists of samples


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


def _is_single(part: object) -> bool:
    if isinstance(part, Tensor):
        return part.ndim == 0
    return isinstance(part, (int, float, str)) and not isinstance(part, bool)


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
