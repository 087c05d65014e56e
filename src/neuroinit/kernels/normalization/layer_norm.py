"""Layer normalization with a double backward of few passes through memory.

The input is a matrix ``x`` whose rows of ``N`` entries are normalized: ``xh = (x - mean) rstd``,
``P u = u - mean(u) - xh mean(u xh)``, ``y = w xh + b``. With ``u = w gy`` the gradients are
``gx = rstd P u``, ``gw = sum gy xh`` and ``gb = sum gy``, sums over rows. The second backward
differentiates ``<a, gx> + <v, gw> + <vb, gb>``. With means and inner products of every row,

    by gy:  w rstd P a + v xh + vb
    by w:   sum gy rstd P a
    by x:   rstd P q - (<u, rstd P a> rstd / N) xh,   q = v gy - rstd (mean(a xh) u + mean(u xh) a)

``rstd P`` is torch's own backward of layer normalization: one kernel.

Why it is here: with torch's double backward, and gain and bias by ``broadcasting.py``, a step of
NIO takes 14% longer for an MLP-Mixer, 6 to 9% for a ViT and 9 to 10% for ``nn.TransformerEncoder``
(engines `keep` and `stream`, medians of 12 to 16 rounds in turns, one CPU thread, torch 2.13; the
same code twice differs by 1 to 5%). Own double backwards of ReLU and GELU gained between -5 and 4%
for residual networks, MLP, MLP-Mixer, ViT and transformer, and were removed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.batched import SMALL, add_rows, batched, row_sums
from neuroinit.kernels.context import (
    KernelContext,
    Saved,
    Slices,
    leaf_gradients,
    per_slice,
    transforms_active,
    without_function_mode,
)
from neuroinit.kernels.normalization import common as normalization


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    context: KernelContext,
) -> Tensor | None:
    """``F.layer_norm`` of an input of shape ``(..., *normalized_shape)``.

    ``None`` leaves the call to torch: the dtypes differ, the input is empty, or there is a bias and
    no gain.
    """
    tensors = input, weight, bias
    alike = all(t is None or t.dtype == input.dtype for t in tensors)
    odd = not input.numel() or (weight is None and bias is not None)
    if odd or not alike or not normalization.are_plain(*tensors):
        return None
    if transforms_active():
        dims = tuple(range(-len(normalized_shape), 0))
        return normalization.normalize(input, dims, weight, bias, eps)
    x, pieces = input.reshape(-1, math.prod(normalized_shape)), context.pieces
    settings: tuple[object, ...] = None, None, eps, context, None
    if pieces is not None and weight is not None:
        pieces.slices(input)  # raises if the first dimension is not that of the samples
        settings = pieces.leaf(weight), pieces.leaf(bias), eps, context, pieces.slices(x)
    y: Tensor = _LayerNorm.apply(x, weight, bias, *settings)  # type: ignore[no-untyped-call]
    return y.view(input.shape)


def _fused_gradients(
    gy: Tensor, x: Tensor, w: Tensor | None, mean: Tensor, rstd: Tensor, wanted: list[bool]
) -> tuple[Tensor, ...]:
    """``gx, gw, gb`` by torch's kernel, ``None`` where not wanted; ``w`` of shape ``(N,)``."""
    found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
        gy, x, [x.shape[1]], mean, rstd, w, w, wanted
    )
    return found


def _plain_gradients(
    gy: Tensor, x: Tensor, w: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``gx, gw, gb`` from operators that can be differentiated any number of times."""
    gx, product = normalization.gradients(gy, x, w, (1,), eps)
    return gx, product.sum(0), gy.sum(0)


class _LayerNorm(torch.autograd.Function):
    """``w xh + b`` for every row.

    Its gradient in the first backward is :class:`_LayerNormGradients`, with slices by the leaves of
    the pieces.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor | None,
        b: Tensor | None,
        leaf: Tensor | None,
        leaf_b: Tensor | None,
        eps: float,
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        gain, bias = (None if t is None else t.flatten() for t in (w, b))
        y, mean, rstd = torch.native_layer_norm(x, [x.shape[1]], gain, bias, eps)
        ctx.save_for_backward(x, w, mean, rstd)
        ctx.eps, ctx.context, ctx.slices = eps, context, slices
        return y

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, mean, rstd = saved
        by_x, by_w, by_b, *by_leaves = ctx.needs_input_grad[:5]
        first, gain = ctx.context.first_backward, None if w is None else w.flatten()
        separate = first and ctx.slices is not None
        wanted = [by_x, *by_leaves] if separate else [by_x, by_w, by_b]
        settings = mean, rstd, wanted, ctx.slices if first else None
        if not torch.is_grad_enabled():
            gx, gw, gb = _gradients(gy, x, gain, *settings)
        elif first:
            gx, gw, gb = _LayerNormGradients.apply(gy, x, gain, *settings)  # type: ignore[no-untyped-call]
        else:
            gx, gw, gb = _plain_gradients(gy, x, gain, ctx.eps)
        gw, gb = (
            g.view(*g.shape[:-1], *w.shape) if needed and g is not None and w is not None else None
            for needed, g in zip(wanted[1:], (gw, gb), strict=True)
        )
        return gx, *leaf_gradients(separate, gw, gb), None, None, None


class _LayerNormGradients(torch.autograd.Function):
    """``gx, gw, gb``, and their backward by ``gy``, ``x`` and ``w``; ``w`` of shape ``(N,)``."""

    @staticmethod
    def forward(
        ctx: Any,
        gy: Tensor,
        x: Tensor,
        w: Tensor | None,
        mean: Tensor,
        rstd: Tensor,
        wanted: list[bool],
        slices: Slices,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w, mean, rstd)
        ctx.slices = slices
        return _gradients(gy, x, w, mean, rstd, wanted, slices)

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any, saved: Saved, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w, mean, rstd = saved
        gain = x.new_ones(x.shape[1]) if w is None else w
        a = torch.zeros_like(gy) if a is None else a
        xh = (x - mean).mul_(rstd)
        pa = _input_gradient(a, x, mean, rstd)  # rstd P a
        product = gy * pa
        t, along = product.sum(0), _row_mean(product, gain)  # of u pa
        torch.mul(gy, xh, out=product)
        q = (gy * gain).mul_(-rstd * (a * xh).mean(1, keepdim=True))
        q.addcmul_(a, -rstd * _row_mean(product, gain))
        ggy = pa.mul_(gain)
        if v is not None:
            add_rows(ggy, ctx.slices, v, xh)
            add_rows(q, ctx.slices, v, gy.contiguous())
        if vb is not None:
            add_rows(ggy, ctx.slices, vb)
        gx = _input_gradient(q, x, mean, rstd).addcmul_(xh, -rstd * along)
        return ggy, gx, None if w is None else t, None, None, None, None


def _gradients(
    gy: Tensor,
    x: Tensor,
    w: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    wanted: list[bool],
    slices: Slices,
) -> tuple[Tensor | None, ...]:
    """Those of ``gx, gw, gb`` that are wanted; with slices, ``gw`` and ``gb`` of every slice."""
    if slices is None:
        return _fused_gradients(gy, x, w, mean, rstd, wanted)
    by_x, by_w, by_b = wanted
    gx = _fused_gradients(gy, x, w, mean, rstd, [by_x, False, False])[0]
    gw = _gain_gradients(gy, x, mean, rstd, slices) if by_w else None
    return gx, gw, row_sums(gy, slices) if by_b else None


def _gain_gradients(gy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, slices: Slices) -> Tensor:
    """``sum gy xh`` over the rows of every slice."""
    if batched(x, slices, SMALL) is not None:
        return row_sums((x - mean).mul_(rstd).mul_(gy), slices)

    def fused(*rows: Tensor) -> Tensor:
        gy, x, mean, rstd = rows
        gain = x.new_ones(x.shape[1])
        return _fused_gradients(gy, x, gain, mean, rstd, [False, True, False])[1]

    return per_slice(fused, slices, gy, x, mean, rstd)


def _input_gradient(u: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    """``rstd P u``."""
    return _fused_gradients(u, x, None, mean, rstd, [True, False, False])[0]


def _row_mean(product: Tensor, gain: Tensor) -> Tensor:
    """``mean(gain product)`` of every row, of shape ``(rows, 1)``."""
    return (product @ gain / len(gain))[:, None]
