"""A batch -> D sub-batches -> the pieces that are computed."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Plan:
    """What is computed: ``pieces`` of the batch, and ``g_d = sum_s weights[d, s] * g_s``.

    With ``whole``, every piece is a slice of the losses of one forward pass of the whole batch
    (BatchNorm then sees the whole batch); otherwise a piece is a forward pass of its own.
    """

    pieces: tuple[Interval, ...]
    weights: Tensor
    whole: bool = False

    @property
    def simple(self) -> bool:
        """Whether every sub-batch is one piece of its own."""
        return len(self.pieces) == len(self.weights) and bool(
            torch.equal(self.weights, _identity(len(self.pieces)))
        )


def plan(intervals: list[Interval], independent: bool, microbatch: int | None, whole: bool) -> Plan:
    """Choose the pieces: each distinct run of samples once where samples don't see each other.

    Args:
        intervals: The sub-batches.
        independent: Whether a sample's loss does not depend on the samples beside it.
        microbatch: Largest number of samples in a piece; only where samples are independent.
        whole: Take slices of one forward pass of the whole batch.
    """
    overlapping = any(a[1] > b[0] for a, b in itertools.pairwise(intervals))
    if whole or not independent or not (overlapping or microbatch):
        return Plan(tuple(intervals), _identity(len(intervals)), whole)
    edges = sorted({edge for interval in intervals for edge in interval})
    pieces = [
        piece
        for start, stop in itertools.pairwise(edges)
        if any(a <= start and stop <= b for a, b in intervals)
        for piece in _chunks(start, stop, microbatch or stop - start)
    ]
    weights = [
        [(t - s) / (b - a) if a <= s and t <= b else 0.0 for s, t in pieces] for a, b in intervals
    ]
    return Plan(tuple(pieces), torch.tensor(weights, dtype=torch.float64, device="cpu"))


def _identity(count: int) -> Tensor:
    return torch.eye(count, dtype=torch.float64, device="cpu")


def _chunks(start: int, stop: int, length: int) -> list[Interval]:
    return [(s, min(s + length, stop)) for s in range(start, stop, length)]


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
    """Apply ``function`` to every tensor in nested tuples, lists, dicts and dataclasses."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item) for item in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(function, item) for item in batch)
    if isinstance(batch, Mapping):
        changed = {key: map_tensors(function, value) for key, value in batch.items()}
        return _like(batch, changed)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        values = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch) if f.init}
        return dataclasses.replace(
            batch, **{k: map_tensors(function, v) for k, v in values.items()}
        )
    return batch


def _like(original: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """The values in a mapping of the original's type, so that its attributes stay usable."""
    if type(original) is dict or not isinstance(original, MutableMapping):
        return values
    twin = copy.copy(original)
    twin.update(values)
    return twin
