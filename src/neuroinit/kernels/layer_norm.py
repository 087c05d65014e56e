"""Layer normalization with a double backward of few passes through memory.

As in ``batch_norm.py``, with the mean and the deviation of every row of ``N`` entries in
place of every channel's: with ``u = w gy``, the directions ``a, v, vb`` of the three gradients, and
means and inner products over rows,

    by gy:  w rstd P a + v xh + vb
    by w:   sum gy rstd P a
    by x:   rstd P q - (<u, rstd P a> rstd / N) xh,   q = v gy - rstd (mean(a xh) u + mean(u xh) a).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.context import KernelContext, Saved, Slices, by_slice, without_function_mode


def layer_normalized(
    args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext
) -> Tensor | None:
    """A call of ``F.layer_norm``; ``None`` where it has no gain and bias, or of another dtype."""
    return _layer_norm(*args, context=context, **kwargs)


def _layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    context: KernelContext,
) -> Tensor | None:
    count = math.prod(normalized_shape)
    if weight is None or weight.dtype != input.dtype or not input.numel():
        return None
    x, pieces = input.reshape(-1, count), context.pieces
    settings: tuple[Any, ...] = None, None, eps, context, None
    if pieces is not None:
        pieces.slices(input)
        settings = pieces.leaf(weight), pieces.leaf(bias), eps, context, pieces.slices(x)
    y: Tensor = _Forward.apply(x, weight, bias, *settings)  # type: ignore[no-untyped-call]
    return y.view(input.shape)


def _backward(
    gy: Tensor, x: Tensor, w: Tensor | None, mean: Tensor, rstd: Tensor, mask: list[bool]
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
        gy, x, [x.shape[1]], mean, rstd, w, w, mask
    )
    return found


class _Forward(torch.autograd.Function):
    """The normalization; its backward is :class:`_Backward` the first time, plain the second."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        b: Tensor | None,
        leaf: Tensor | None,
        leaf_b: Tensor | None,
        eps: float,
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        bias = None if b is None else b.flatten()
        y, mean, rstd = torch.native_layer_norm(x, [x.shape[1]], w.flatten(), bias, eps)
        ctx.save_for_backward(x, w, mean, rstd)
        ctx.context, ctx.slices = context, slices
        return y

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, mean, rstd = saved
        by_x, *by = ctx.needs_input_grad[:5]
        gain, nothing = w.flatten(), [None, None]
        if ctx.context.second_backward or ctx.slices is None:
            wanted, order = [by_x, *by[:2]], slice(0, 2)
        else:
            wanted, order = [by_x, *by[2:]], slice(2, 4)
        if ctx.context.second_backward:
            gx, *found = _backward(gy, x, gain, mean, rstd, wanted)
        else:
            gx, *found = _Backward.apply(gy, x, w, mean, rstd, wanted, ctx.slices)  # type: ignore[no-untyped-call]
        found = [None if g is None else g.view(*g.shape[:-1], *w.shape) for g in found]
        placed: list[Tensor | None] = [*nothing, *nothing]
        placed[order] = found
        return gx, *placed, None, None, None


class _Backward(torch.autograd.Function):
    """The gradients of the normalization, and their own backward."""

    @staticmethod
    def forward(
        ctx: Any,
        gy: Tensor,
        x: Tensor,
        w: Tensor,
        mean: Tensor,
        rstd: Tensor,
        wanted: list[bool],
        slices: Slices,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w, mean, rstd)
        ctx.slices = slices
        by_x, by_w, by_b = wanted
        gain = w.flatten()
        if slices is None:
            return _backward(gy, x, gain, mean, rstd, wanted)
        gx = _backward(gy, x, gain, mean, rstd, [by_x, False, False])[0]

        def by_gain(gy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
            return _backward(gy, x, gain, mean, rstd, [False, True, False])[1]

        gw = by_slice(by_gain, slices, gy, x, mean, rstd) if by_w else None
        return gx, gw, by_slice(lambda g: g.sum(0), slices, gy) if by_b else None

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any, saved: Saved, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w, mean, rstd = saved
        gain, count = w.flatten(), x.shape[1]
        a = torch.zeros_like(gy) if a is None else a
        pa = _backward(a, x, None, mean, rstd, [True, False, False])[0]
        xh = (x - mean).mul_(rstd)
        product = gy * pa
        t, along = product.sum(0), product @ gain
        torch.mul(gy, xh, out=product)
        q = (gy * gain).mul_(-rstd * (a * xh).mean(1, keepdim=True))
        q.addcmul_(a, -rstd * (product @ gain / count)[:, None])
        ggy = pa.mul_(gain)
        for s, v_s, vb_s in _directions(ctx.slices, v, vb):
            if v_s is not None:
                ggy[s].addcmul_(xh[s], v_s)
                q[s].addcmul_(gy[s], v_s)
            if vb_s is not None:
                ggy[s].add_(vb_s)
        gx = _backward(q, x, None, mean, rstd, [True, False, False])[0]
        gx.addcmul_(xh, -rstd * (along / count)[:, None])
        return ggy, gx, t.view(w.shape), None, None, None, None


def _directions(
    slices: Slices, v: Tensor | None, vb: Tensor | None
) -> list[tuple[slice, Tensor | None, Tensor | None]]:
    """The directions of every slice; without slices, of all."""
    if slices is None:
        return [(slice(None), v, vb)]
    count = len(slices)
    gains = [None] * count if v is None else list(v)
    biases = [None] * count if vb is None else list(vb)
    return list(zip(slices, gains, biases, strict=True))
