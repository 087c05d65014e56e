"""Embeddings with a gradient for every piece."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.batched import batched
from neuroinit.kernels.context import (
    KernelContext,
    Saved,
    Slices,
    per_slice,
    transforms_active,
    without_function_mode,
)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    context: KernelContext,
) -> Tensor:
    """``F.embedding``: ``y = weight[input]`` for a table of shape ``(entries, features)``.

    The gradient is dense, because torch's sparse gradients have wrong third derivatives (2.13). In
    a pass over several pieces it is kept apart, unless the table is changed (``max_norm``) or its
    entries are counted (``scale_grad_by_freq``). Indices have the shape ``(samples, ...)``; those
    with one dimension or of shape ``(1, ...)`` are the same for all samples, such as positions.
    """
    pieces = context.pieces
    settings = padding_idx, max_norm, norm_type, scale_grad_by_freq
    leaf = None if pieces is None else pieces.leaves.get(id(weight))
    special = max_norm is not None or scale_grad_by_freq or transforms_active()
    if pieces is None or leaf is None or special:
        return F.embedding(input, weight, *settings)
    if input.dim() == 1 or len(input) == 1 < pieces.intervals[-1][1]:
        y = F.embedding(input, weight, padding_idx)
        pieces.derived[id(y)] = y, _of_every_leaf(input, leaf, padding_idx)
        return y
    padding = -1 if padding_idx is None else padding_idx % len(weight)
    found: Tensor = _Embedding.apply(weight, leaf, input, padding, context, pieces.slices(input))  # type: ignore[no-untyped-call]
    return found


def _of_every_leaf(index: Tensor, leaf: Tensor, padding: int | None) -> Tensor:
    """``leaf[k][index]`` for every piece ``k``."""
    if padding is None:
        rows = leaf.index_select(1, index.flatten())
        return rows.view(len(leaf), *index.shape, -1)
    return torch.stack([F.embedding(index, own, padding) for own in leaf])


class _Embedding(torch.autograd.Function):
    """``weight[index]``; in the first backward the gradients of the pieces by the leaf."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        leaf: Tensor,
        index: Tensor,
        padding: int,
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        ctx.save_for_backward(index)
        ctx.entries, ctx.padding, ctx.context, ctx.slices = len(weight), padding, context, slices
        return F.embedding(index, weight)

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.context.first_backward:
            by_piece = _table_gradients(g, saved[0], ctx.entries, ctx.padding, ctx.slices)
            return None, by_piece, None, None, None, None
        found = _table_gradient(g, saved[0], ctx.entries, ctx.padding)
        return found, None, None, None, None, None


def _table_gradient(g: Tensor, index: Tensor, entries: int, padding: int) -> Tensor:
    found: Tensor = torch.ops.aten.embedding_dense_backward(g, index, entries, padding, False)
    return found


def _table_gradients(
    g: Tensor, index: Tensor, entries: int, padding: int, slices: Slices
) -> Tensor:
    """The gradients of all slices; computed at once as one table with one part for every slice."""
    pieces = batched(g, slices)
    if pieces is None:
        return per_slice(lambda g, i: _table_gradient(g, i, entries, padding), slices, g, index)
    offsets = torch.arange(pieces.count, device=index.device) * entries
    rows = pieces.repeated(offsets).view(-1, *[1] * (index.dim() - 1))
    found = _table_gradient(g, index + rows, pieces.count * entries, -1)
    found = found.view(pieces.count, entries, -1)
    if padding >= 0:
        found[:, padding] = 0
    return found
