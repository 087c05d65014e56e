"""Batch normalization with a double backward of few passes through memory.

With ``xh = (x - mean) rstd``, ``P u = u - mean(u) - xh mean(u xh)`` and the gain ``w``, the
gradients are ``gx = w rstd P gy``, ``gw = sum gy xh``, ``gb = sum gy``. For the directions ``a, v,
vb`` of these three, and ``t = sum gy rstd P a``, per channel of ``N`` entries,

    by gy:  w rstd P a + v xh + vb
    by w:   t
    by x:   rstd P q - (w t rstd / N) xh,   q = (v - (w rstd / N) sum(a xh)) gy - (w rstd / N) gw a.

``rstd P`` is torch's own backward of batch normalization: one kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.context import KernelContext, Saved, without_function_mode


def normalized(
    args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext
) -> Tensor | None:
    """A call of ``F.batch_norm``; ``None`` where it takes no statistics of its input."""
    return _batch_norm(*args, context=context, **kwargs)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    context: KernelContext,
) -> Tensor | None:
    alike = all(t is None or t.dtype == input.dtype for t in (weight, bias))
    if not training or not alike or input.numel() == input.shape[1]:
        return None
    running = running_mean, running_var, momentum
    found: Tensor = _Forward.apply(input, weight, bias, running, eps, context)  # type: ignore[no-untyped-call]
    return found


def _backward(gy: Tensor, x: Tensor, w: Tensor | None, saved: tuple[Any, ...]) -> Any:
    mean, rstd, eps = saved
    mask = [True, True, True]
    return torch.ops.aten.native_batch_norm_backward(
        gy, x, w, None, None, mean, rstd, True, eps, mask
    )


class _Forward(torch.autograd.Function):
    """The normalization; its backward is :class:`_Backward` the first time, plain the second."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor | None,
        b: Tensor | None,
        running: tuple[Any, Any, float],
        eps: float,
        context: KernelContext,
    ) -> Tensor:
        y, mean, rstd = torch.native_batch_norm(x, w, b, *running[:2], True, running[2], eps)
        ctx.save_for_backward(x, w, mean, rstd)
        ctx.eps, ctx.context = eps, context
        return y

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, mean, rstd = saved
        kept = mean, rstd, ctx.eps
        if ctx.context.second_backward:
            gx, gw, gb = _backward(gy, x, w, kept)
        else:
            gx, gw, gb = _Backward.apply(gy, x, w, kept)  # type: ignore[no-untyped-call]
        by_x, by_w, by_b, *_ = ctx.needs_input_grad
        return gx if by_x else None, gw if by_w else None, gb if by_b else None, None, None, None


class _Backward(torch.autograd.Function):
    """The gradients of the normalization, and their own backward."""

    @staticmethod
    def forward(
        ctx: Any, gy: Tensor, x: Tensor, w: Tensor | None, kept: tuple[Any, ...]
    ) -> tuple[Tensor, ...]:
        gx, gw, gb = _backward(gy, x, w, kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w, gw, *kept[:2])
        ctx.eps = kept[2]
        return gx, gw, gb

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any, saved: Saved, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w, gw, mean, rstd = saved
        kept, ones = (mean, rstd, ctx.eps), torch.ones_like(mean)
        gain = ones if w is None else w
        a = torch.zeros_like(gy) if a is None else a
        v = torch.zeros_like(mean) if v is None else v
        count = x.numel() // x.shape[1]
        wide = (-1, *(1 for _ in x.shape[2:]))

        def fit(channels: Tensor) -> Tensor:
            return channels.view(wide)

        pa, a_xh, _ = _backward(a, x, ones, kept)
        t = (gy * pa).sum([0, *range(2, x.dim())])
        slope = v * rstd
        shift = -slope * mean if vb is None else vb - slope * mean
        ggy = torch.addcmul(fit(shift), x, fit(slope)).addcmul_(pa, fit(gain))
        share = gain * rstd / count
        q = (a * fit(-share * gw)).addcmul_(gy, fit(v - share * a_xh))
        gx, _, _ = _backward(q, x, ones, kept)
        slope = -share * t * rstd
        gx.addcmul_(x, fit(slope)).add_(fit(-slope * mean))
        return ggy, gx, None if w is None else t, None
