"""All pieces of a batch in one operator, in place of a loop over slices.

On an accelerator every operator is a launch, so pieces are always computed at once; those of
different sizes are padded with zeros. A CPU computes pieces of equal size at once, except for
convolutions of large pieces. Time of a loop over slices divided by the time at once, for the weight
gradients, ``v x`` and ``v^T gy`` of all pieces (float32, one thread, torch 2.13):

    linear, 8 pieces        16 features    64    256        convolution 3x3, 8 pieces
    1 row per piece                 4.4   4.1    1.7        1 sample,  16 channels, 8x8      1.4
    16 rows                         4.6   3.1    1.5        8 samples, 16 channels, 8x8      2.2
    64 rows                         4.1   2.0    1.2        2 samples, 16 channels, 32x32    1.2
    256 rows                          -     -    1.1        8 samples, 16 channels, 32x32    0.4
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from neuroinit.kernels.context import RowSlices, Slices, per_slice, slice_directions

SMALL = 2**14  # entries of a piece up to which a CPU computes all convolutions at once


class Batched:
    """Converts activations ``(rows, ...)`` to one entry per piece, ``(pieces, n, ...)``, and back.

    Pieces of different sizes are padded: with zeros, or with copies of their last row. Copies take
    one operator, zeros two; they are for products whose other factor is zero there, and for results
    that are dropped.

    Args:
        slices: The rows of every piece.
    """

    def __init__(self, slices: RowSlices) -> None:
        self.sizes, self.most, self.equal = slices.sizes, slices.most, slices.equal
        self.count = len(slices)
        self._indices: dict[tuple[str, torch.device], Tensor] = {}

    def apart(self, x: Tensor, zeros: bool = True) -> Tensor:
        """``(pieces, n, ...)``, padded."""
        shape = self.count, self.most, *x.shape[1:]
        return x.reshape(shape) if self.equal else self._padded(x, zeros, False).view(shape)

    def joined(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`apart`."""
        flat = x.reshape(self.count * self.most, *x.shape[2:])
        return flat if self.equal else flat.index_select(0, self._places(x))

    def rows(self, x: Tensor, zeros: bool = True) -> Tensor:
        """``(pieces, n, features)`` from ``(rows, ..., features)``, padded."""
        if self.equal:
            return x.reshape(self.count, -1, x.shape[-1])
        return self.apart(x, zeros).flatten(1, -2)

    def channels(self, x: Tensor, zeros: bool = True) -> Tensor:
        """``(n, pieces * channels, ...)`` from ``(rows, channels, ...)``, padded."""
        if self.equal:
            return self.apart(x).transpose(0, 1).flatten(1, 2)
        return self._padded(x, zeros, True).view(self.most, -1, *x.shape[2:])

    def from_channels(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`channels`."""
        if self.equal:
            apart = x.view(self.most, self.count, -1, *x.shape[2:]).transpose(0, 1)
            return self.joined(apart)
        flat = x.reshape(self.most * self.count, -1, *x.shape[2:])
        return flat.index_select(0, self._places(x, True))

    def repeated(self, v: Tensor) -> Tensor:
        """``v[k]`` once for every row of piece ``k``: ``(rows, ...)`` from ``(pieces, ...)``."""
        if self.equal:
            return v[:, None].expand(-1, self.most, *v.shape[1:]).flatten(0, 1)
        return v.index_select(0, self._places(v) // self.most)

    def _padded(self, x: Tensor, zeros: bool, turned: bool) -> Tensor:
        if not zeros:
            return x.index_select(0, self._sources(x, turned))
        padded = x.new_zeros(self.count * self.most, *x.shape[1:])
        return padded.index_copy(0, self._places(x, turned), x)

    def _places(self, x: Tensor, turned: bool = False) -> Tensor:
        """The index of every row in the flattened ``(pieces, n)``; if turned, ``(n, pieces)``."""

        def rows() -> list[int]:
            pairs = [(k, i) for k, size in enumerate(self.sizes) for i in range(size)]
            return [i * self.count + k if turned else k * self.most + i for k, i in pairs]

        return self._index(x, f"places, {turned}", rows)

    def _sources(self, x: Tensor, turned: bool) -> Tensor:
        """The row for every place in ``(pieces, n)``, or in ``(n, pieces)``; last rows repeat."""

        def rows() -> list[int]:
            ends = itertools.accumulate(self.sizes)
            own = [
                [end - max(size - i, 1) for i in range(self.most)]
                for end, size in zip(ends, self.sizes, strict=True)
            ]
            return list(itertools.chain(*(zip(*own, strict=True) if turned else own)))

        return self._index(x, f"sources, {turned}", rows)

    def _index(self, x: Tensor, name: str, rows: Callable[[], list[int]]) -> Tensor:
        """An index on the device of ``x``; copied there once."""
        key = name, x.device
        if key not in self._indices:
            index = torch.tensor(rows(), device="cpu")
            self._indices[key] = index.to(x.device, non_blocking=True)
        return self._indices[key]


def batched(x: Tensor, slices: Slices, most: int | None = None) -> Batched | None:
    """The conversion to compute all pieces at once; ``None`` if a loop over slices is faster.

    Args:
        x: Activations, of shape ``(rows, ...)``.
        slices: The rows of every piece.
        most: Entries of a piece up to which a CPU computes them at once; no limit by default.
    """
    if slices is None or len(slices) == 1:
        return None
    fits = slices.equal and (most is None or x.numel() <= most * len(slices))
    if not fits and x.device.type == "cpu":
        return None
    if not isinstance(slices.known, Batched):  # every layer asks for it
        slices.known = Batched(slices)
    return slices.known


def row_sums(x: Tensor, slices: Slices) -> Tensor:
    """The sum over rows; with slices, over the rows of every slice: ``(slices, ...)``."""
    pieces = batched(x, slices)
    if pieces is None:
        return per_slice(lambda x: x.sum(0), slices, x)
    return pieces.apart(x).sum(1)


def add_rows(total: Tensor, slices: Slices, v: Tensor, x: Tensor | None = None) -> None:
    """``total[s] += x[s] v_s`` for the rows of every slice, in place; without ``x``, ``v_s``.

    Args:
        total: Activations, of shape ``(rows, ...)``.
        slices: The rows of every slice.
        v: One entry per slice; or without slices one for all rows.
        x: Of the shape of ``total``.
    """
    pieces = batched(total, slices)
    parts = slice_directions(slices, v) if pieces is None else []
    if pieces is not None and pieces.equal:
        shape = pieces.count, pieces.most, *total.shape[1:]
        total, x = total.view(shape), None if x is None else x.view(shape)
        parts = [(slice(None), v[:, None])]
    elif pieces is not None:
        parts = [(slice(None), pieces.repeated(v))]
    for s, own in parts:
        if x is None:
            total[s].add_(own)
        else:
            total[s].addcmul_(x[s], own)
