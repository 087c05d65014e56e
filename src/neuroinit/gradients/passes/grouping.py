"""Which pieces of a batch are computed together, and the batch of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.layout import BatchLayout
from neuroinit.kernels.context import NotSeparableError


def side_by_side(layout: BatchLayout, batch: Batch, pieces: Sequence[Interval]) -> Batch:
    """A batch of these pieces one after the other; overlapping pieces repeat samples."""
    if all(a[1] == b[0] for a, b in itertools.pairwise(pieces)):
        return layout.cut(batch, pieces[0][0], pieces[-1][1])
    try:
        return layout.join([layout.cut(batch, start, stop) for start, stop in pieces])
    except ValueError as error:
        raise NotSeparableError from error


def grouped(
    pieces: Sequence[Interval], samples: int, most: int, alike: bool
) -> list[list[Interval]]:
    """Groups of pieces with at most so many samples and pieces; or one larger piece.

    Args:
        pieces: In order.
        samples: Most samples of a group.
        most: Most pieces of a group.
        alike: The pieces of a group have the same number of samples.
    """
    found: list[list[Interval]] = []
    for start, stop in pieces:
        lengths = [b - a for a, b in found[-1]] if found else []
        fits = 0 < len(lengths) < most and sum(lengths) + stop - start <= samples
        if fits and (not alike or lengths[0] == stop - start):
            found[-1].append((start, stop))
        else:
            found.append([(start, stop)])
    return found
