"""Oracles of sub-batches: which samples they have."""

import math
from fractions import Fraction
from typing import Any

from torch import Tensor

Slices = list[slice]


def sub_batch_slices_paper(B: int, D: int, r: float) -> Slices:
    """Eq. 7, in exact arithmetic and cut at the end of the batch (a late slice may be empty)."""
    ratio = Fraction(str(r))
    N = math.ceil(B / (D - ratio))
    starts = [math.floor(N * (d - 1) * (1 - ratio)) for d in range(1, D + 1)]
    return [slice(min(start, B), min(start + N, B)) for start in starts]


def sub_batch_slices_reference(B: int, D: int, r: float) -> Slices:
    """The slices of the authors' code, in its floating point arithmetic."""
    n = int(B / D)
    slices = []
    for i in range(D):
        start = 0 if i == 0 else int((1 - r) * n * i)
        stop = B if i == D - 1 else int((1 + r) * n * (i + 1))
        slices.append(slice(start, min(stop, B)))
    return slices


def sub_batch_slices_cover(B: int, D: int, r: float) -> Slices:
    """Evenly spaced slices that cover the batch, in exact arithmetic."""
    N = math.ceil(B / (D - Fraction(str(r)) * (D - 1)))
    starts = [(B - N) * d // (D - 1) for d in range(D)] if D > 1 else [0]
    return [slice(start, start + N) for start in starts]


def cut(batch: Any, part: slice) -> Any:
    """The samples `part` of a nested batch, floating point tensors in float64."""
    if isinstance(batch, Tensor):
        return batch[part].double() if batch.is_floating_point() else batch[part]
    if isinstance(batch, dict):
        return {key: cut(value, part) for key, value in batch.items()}
    return type(batch)(cut(value, part) for value in batch)
