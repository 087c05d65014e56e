"""A batch and its D sub-batches."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, MutableMapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

Interval = tuple[int, int]


def sub_batches(size: int, count: int, overlap: float, rule: str) -> list[Interval]:
    """Cut ``size`` samples into ``count`` intervals ``(start, stop)``.

    Args:
        size: Number of samples ``B``.
        count: Number of sub-batches ``D``.
        overlap: Overlap ratio ``r`` of the paper's Eq. 8.
        rule: ``"cover"``, ``"paper"`` or ``"reference"``, see :data:`SPLITS`.

    Raises:
        ValueError: If there are fewer samples than sub-batches, or a sub-batch comes out empty.

    Example:
        >>> sub_batches(10, 2, 0.6, "cover")
        [(0, 8), (2, 10)]
    """
    if size < count:
        raise ValueError(
            f"A batch of {size} samples cannot be cut into `sub_batches = {count}`. "
            "Use larger batches or fewer sub-batches."
        )
    intervals = SPLITS[rule](size, count, overlap)
    empty = [d for d, (start, stop) in enumerate(intervals) if start >= stop]
    if empty:
        raise ValueError(
            f"`split = '{rule}'` leaves sub-batch {empty[0]} of {count} empty for {size} samples "
            f"and `overlap = {overlap}`. Use `split='cover'`, or another batch size."
        )
    return intervals


def _cover(size: int, count: int, overlap: float) -> list[Interval]:
    """Ours: sub-batches of one length, evenly spaced, that use every sample."""
    length = math.ceil(size / (count - _exact(overlap) * (count - 1)))
    starts = [(size - length) * d // max(1, count - 1) for d in range(count)]
    return [(start, start + length) for start in starts]


def _paper(size: int, count: int, overlap: float) -> list[Interval]:
    """Eq. 8 to the letter; for D > 2 it leaves the end of the batch unused."""
    length = math.ceil(size / (count - _exact(overlap)))
    starts = [math.floor(length * d * (1 - _exact(overlap))) for d in range(count)]
    return [(start, min(start + length, size)) for start in starts]


def _reference(size: int, count: int, overlap: float) -> list[Interval]:
    """The slices of the authors' released code; the sub-batches differ in length."""
    length = size // count
    starts = [int((1 - overlap) * length * d) for d in range(count)]
    stops = [int((1 + overlap) * length * (d + 1)) for d in range(count - 1)] + [size]
    return [(start, min(stop, size)) for start, stop in zip(starts, stops, strict=True)]


def _exact(overlap: float) -> Fraction:
    """0.8 as 4/5: in floats ``10 * (1 - 0.8)`` is below 2, and a sample would be lost."""
    return Fraction(str(overlap))


SPLITS: dict[str, Callable[[int, int, float], list[Interval]]] = {
    "cover": _cover,
    "paper": _paper,
    "reference": _reference,
}


def batch_size(batch: Any) -> int:
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


def cut(batch: Any, start: int, stop: int) -> Any:
    """The samples ``start`` to ``stop`` of a batch: every tensor is cut along dimension 0."""
    return map_tensors(lambda t: t[start:stop] if t.dim() else t, batch)


def map_tensors(function: Callable[[Tensor], Any], batch: Any) -> Any:
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


def ragged(batch: Any) -> bool:
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
