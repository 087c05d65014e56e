"""The products of linear layers and convolutions for all pieces of a batch.

Pieces of equal size are computed by one operator: batched matrix products for linear layers, and
for convolutions one convolution in which every piece is a group,

    x: (pieces * n, channels, ...)  ->  (n, pieces * channels, ...).

``batched.py`` decides when; otherwise every piece is one product. 1x1 convolutions of
pieces of equal size are batched matrix products of ``(pieces, channels, n * positions)``. On a CPU,
torch takes one product per sample for less than 16 samples. For 8 pieces of 8 samples, 2048 to 512
channels, 2x2 positions, weight gradients take 26 ms in place of 60, ``v^T gy`` 13 in place of 224
and ``v x`` 9 in place of 81; with 8x8 or more positions both take as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from neuroinit.kernels.batched import SMALL, Batched, batched
from neuroinit.kernels.context import Slices, per_slice, slice_directions
from neuroinit.kernels.products.bilinear import Convolution, Linear, Operator


def weight_and_bias_gradients(
    operator: Operator, gy: Tensor, x: Tensor, w: Tensor, slices: Slices, by_w: bool, by_b: bool
) -> tuple[Tensor | None, Tensor | None]:
    """``gw`` of the shape of ``w`` and ``gb`` of shape ``(out,)``, as far as they are wanted.

    With slices, those of every slice: ``(slices, *w.shape)`` and ``(slices, out)``.
    """
    for_w = _batched(operator, x, slices, w) if by_w else None
    for_b = _batched(operator, gy, slices) if by_b else None
    gw = gb = apart = None
    if for_w is not None:  # padding takes two operators: once for weight and bias
        apart = _apart(operator, for_w, gy, w)
        gw = _weight_gradients(operator, for_w, apart, x, w)
    elif by_w:
        gw = per_slice(lambda gy, x: operator.weight_gradient(gy, x, w), slices, gy, x)
    if for_b is not None:
        apart = _apart(operator, for_b, gy, None) if apart is None else apart
        gb = _bias_gradients(operator, for_b, apart)
    elif by_b:
        gb = per_slice(operator.bias_gradient, slices, gy)
    return gw, gb


def _apart(operator: Operator, pieces: Batched, gy: Tensor, w: Tensor | None) -> Tensor:
    """``gy`` of all pieces for one product: ``(pieces, rows, out)`` for a linear layer,
    ``(n, pieces * out, ...)`` for a convolution, ``(pieces, n, out, ...)`` for a 1x1 convolution or
    if there is no weight.
    """
    if isinstance(operator, Linear):
        return pieces.rows(gy)
    product = w is None or operator.is_product(w)
    return pieces.apart(gy) if product else pieces.channels(gy)


def _weight_gradients(
    operator: Operator, pieces: Batched, apart: Tensor, x: Tensor, w: Tensor
) -> Tensor:
    """``gw`` of every piece, from ``gy`` as :func:`_apart` returns it."""
    if isinstance(operator, Linear):
        rows = pieces.rows(x, zeros=False)
        return rows.mT @ apart if operator.transposed else apart.mT @ rows
    if operator.is_product(w):
        columns = _columns(pieces.apart(x, zeros=False))
        return (_columns(apart) @ columns.mT).view(pieces.count, *w.shape)
    groups, shape = _grouped(operator, pieces), (pieces.count * w.shape[0], *w.shape[1:])
    like = w.new_empty(1).expand(shape)  # only the shape is used
    found = groups.weight_gradient(apart, pieces.channels(x, zeros=False), like)
    return found.view(pieces.count, *w.shape)


def _bias_gradients(operator: Operator, pieces: Batched, apart: Tensor) -> Tensor:
    """``gb`` of every piece, from ``gy`` as :func:`_apart` returns it."""
    if isinstance(operator, Linear):
        return apart.sum(1)
    if apart.dim() == len(operator.stride) + 3:
        return apart.sum([1, *range(3, apart.dim())])
    return apart.sum([0, *range(2, apart.dim())]).view(pieces.count, -1)


def input_gradients(operator: Operator, gy: Tensor, x: Tensor, v: Tensor, slices: Slices) -> Tensor:
    """``v^T gy`` of the shape of ``x``; with slices, by the weights ``v[s]`` of every slice."""
    pieces = _batched(operator, x, slices, v)
    if pieces is None:
        directions = slice_directions(slices, v)
        return _join([operator.input_gradient(gy[s], x[s], v_s) for s, v_s in directions])
    if isinstance(operator, Linear):
        gy = pieces.apart(gy, zeros=False)
        return pieces.joined(_unflattened(torch.bmm(gy.flatten(1, -2), operator.usual(v)), gy))
    if operator.is_product(v[0]):
        columns = _columns(pieces.apart(gy, zeros=False))
        return _from_columns(v.flatten(2).mT @ columns, pieces, x.shape[2:])
    gy = pieces.channels(gy, zeros=False)
    shape = pieces.most, pieces.count * x.shape[1], *x.shape[2:]
    like = x.new_empty(1).expand(shape)  # only the shape is used
    found = _grouped(operator, pieces).input_gradient(gy, like, v.flatten(0, 1))
    return pieces.from_channels(found)


def add_forward(
    operator: Operator,
    slices: Slices,
    x: Tensor,
    v: Tensor,
    vb: Tensor | None,
    total: Tensor | None,
) -> Tensor:
    """``total + v x + vb`` with ``v[s]`` and ``vb[s]`` for slice ``s``; ``total`` is changed."""
    pieces = _batched(operator, x, slices, v)
    if pieces is not None:
        part = _forward(operator, pieces, x, v, vb)
        return part if total is None else total.add_(part)
    directions = slice_directions(slices, v)
    biases: list[Tensor | None] = [None] * len(directions)
    if vb is not None:
        biases = [own for _, own in slice_directions(slices, vb)]
    parts = (operator.forward(x[s], own, b) for (s, own), b in zip(directions, biases, strict=True))
    if total is None:
        return _join(list(parts))
    for (s, _), part in zip(directions, parts, strict=True):
        total[s].add_(part)
    return total


def _forward(
    operator: Operator, pieces: Batched, x: Tensor, v: Tensor, vb: Tensor | None
) -> Tensor:
    """``v x + vb`` of all pieces in one product."""
    if isinstance(operator, Linear):
        x, v = pieces.apart(x, zeros=False), operator.usual(v)
        rows = x.flatten(1, -2)
        y = rows @ v.mT if vb is None else torch.baddbmm(vb[:, None], rows, v.mT)
        return pieces.joined(_unflattened(y, x))
    if operator.is_product(v[0]):
        rows = v.flatten(2) @ _columns(pieces.apart(x, zeros=False))
        rows = rows if vb is None else rows.add_(vb[:, :, None])
        return _from_columns(rows, pieces, x.shape[2:])
    bias = None if vb is None else vb.flatten()
    own = pieces.channels(x, zeros=False)
    return pieces.from_channels(_grouped(operator, pieces).forward(own, v.flatten(0, 1), bias))


def _batched(
    operator: Operator, x: Tensor, slices: Slices, w: Tensor | None = None
) -> Batched | None:
    """How pieces are computed at once, for a weight ``(out, in, ...)`` or one for every slice."""
    if slices is None:
        return None
    if isinstance(operator, Linear):
        return batched(x, slices)
    product = w is not None and operator.is_product(w if w.dim() == x.dim() else w[0])
    return batched(x, slices, None if product else SMALL)


def _columns(x: Tensor) -> Tensor:
    """``(pieces, n, channels, ...)`` as ``(pieces, channels, n * positions)``."""
    return x.flatten(3).transpose(1, 2).flatten(2)


def _from_columns(columns: Tensor, pieces: Batched, size: Sequence[int]) -> Tensor:
    """Activations ``(rows, channels, *size)`` from ``(pieces, channels, n * positions)``."""
    apart = columns.view(*columns.shape[:2], pieces.most, *size).transpose(1, 2)
    return pieces.joined(apart)


def _grouped(operator: Convolution, pieces: Batched) -> Convolution:
    """The convolution in which every piece has separate groups."""
    return dataclasses.replace(operator, groups=pieces.count * operator.groups)


def _unflattened(rows: Tensor, like: Tensor) -> Tensor:
    """``(pieces, rows, features)`` with the leading dimensions of another tensor."""
    return rows.view(*like.shape[:-1], rows.shape[-1])


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
