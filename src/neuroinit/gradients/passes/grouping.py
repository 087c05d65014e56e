"""Group the pieces of a batch that one pass computes, and concatenate them to a batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.layout import BatchLayout
from neuroinit.kernels.context import NotSeparableError


def side_by_side(layout: BatchLayout, batch: Batch, pieces: Sequence[Interval]) -> Batch:
    """Concatenate pieces to one batch; samples in several pieces are repeated."""
    if all(a[1] == b[0] for a, b in itertools.pairwise(pieces)):
        return layout.cut(batch, pieces[0][0], pieces[-1][1])
    try:
        return layout.join([layout.cut(batch, start, stop) for start, stop in pieces])
    except ValueError as error:
        raise NotSeparableError from error


def grouped(
    pieces: Sequence[Interval], samples: int, most: int, alike: bool
) -> list[list[Interval]]:
    """Group consecutive pieces; a piece of more than ``samples`` samples is a group alone.

    Args:
        pieces: ``(start, stop)`` of every piece, in order.
        samples: Most samples in a group.
        most: Most pieces in a group.
        alike: All pieces of a group must have the same number of samples.
    """
    groups: list[list[Interval]] = []
    for start, stop in pieces:
        lengths = [b - a for a, b in groups[-1]] if groups else []
        fits = 0 < len(lengths) < most and sum(lengths) + stop - start <= samples
        if fits and (not alike or lengths[0] == stop - start):
            groups[-1].append((start, stop))
        else:
            groups.append([(start, stop)])
    return groups
