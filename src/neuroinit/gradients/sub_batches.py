"""How a batch of B samples is cut into D sub-batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from neuroinit.common.batches import Interval

USUAL = 8  # default of NIO and of `gradient_stats`, so that their numbers are comparable


def sub_batches(size: int, count: int, overlap: float, split: str) -> list[Interval]:
    """Cut ``size`` samples into ``count`` intervals ``(start, stop)``.

    Args:
        size: Number of samples ``B``.
        count: Number of sub-batches ``D``.
        overlap: Overlap ratio ``r`` of the paper's Eq. 7.
        split: ``"cover"``, ``"paper"`` or ``"reference"``, see :data:`SPLITS`.

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
    intervals = SPLITS[split](size, count, overlap)
    empty = [d for d, (start, stop) in enumerate(intervals) if start >= stop]
    if empty:
        raise ValueError(
            f"`split = '{split}'` leaves sub-batch {empty[0]} of {count} empty for {size} samples "
            f"and `overlap = {overlap}`. Use `split='cover'`, or another batch size."
        )
    return intervals


def usual_count(size: int) -> int:
    """The default number of sub-batches; small batches have fewer, of two samples or more each."""
    return min(USUAL, max(min(2, size), size // 2))


def _cover(size: int, count: int, overlap: float) -> list[Interval]:
    """Ours: sub-batches of one length, evenly spaced, that use every sample."""
    length = math.ceil(size / (count - _exact(overlap) * (count - 1)))
    starts = [(size - length) * d // max(1, count - 1) for d in range(count)]
    return [(start, start + length) for start in starts]


def _paper(size: int, count: int, overlap: float) -> list[Interval]:
    """Exactly Eq. 7; for D > 2 it leaves the end of the batch unused."""
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
