"""Batch normalization with a double backward of few passes through memory.

With statistics over the ``N`` entries of every channel, ``xh = (x - mean) rstd`` and the projection
``P u = u - mean(u) - xh mean(u xh)``, the output is ``y = w xh + b`` and the gradients are
``gx = w rstd P gy``, ``gw = sum gy xh``, ``gb = sum gy``. The second backward differentiates
``<a, gx> + <v, gw> + <vb, gb>``. With ``t = sum gy rstd P a`` for every channel,

    by gy:  w rstd P a + v xh + vb
    by w:   t
    by x:   rstd P q - (w t rstd / N) xh,   q = (v - (w rstd / N) sum(a xh)) gy - (w rstd / N) gw a

``rstd P`` is torch's own backward of batch normalization: one kernel.

In a pass over several pieces, statistics are those of each piece. ``D`` pieces of ``n`` samples
and ``C`` channels are computed as one batch of ``n`` samples and ``D C`` channels, by one kernel.
This needs a copy of the input and one of the output: on a CPU the forward pass is 10 to 25% slower
than one kernel per piece, but the number of operators does not depend on ``D``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.broadcasting import repeat_for_pieces
from neuroinit.kernels.context import (
    KernelContext,
    NotSeparableError,
    PieceParameters,
    Saved,
    transforms_active,
    without_function_mode,
)
from neuroinit.kernels.normalization import common as normalization
from neuroinit.kernels.normalization.gain_and_bias import gain_and_bias


def batch_norm(
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
    """``F.batch_norm`` of an input of shape ``(samples, channels, ...)`` with its own statistics.

    ``None`` leaves the call to torch: running statistics are used, dtypes differ, or a channel has
    a single entry. Under a ``torch.func`` transform or in pieces the running statistics are not
    updated.

    Raises:
        NotSeparableError: If pieces cannot have separate statistics.
    """
    pieces, tensors = context.pieces, (input, weight, bias)
    alike = all(t is None or t.dtype == input.dtype for t in tensors)
    single = input.numel() == input.shape[1]
    ours = training and alike and not single and normalization.are_plain(*tensors)
    if pieces is not None:
        if training and (not ours or transforms_active()):
            raise NotSeparableError
        if training:
            return _of_pieces(input, weight, bias, eps, context, pieces)
        y = torch.batch_norm(input, None, None, running_mean, running_var, False, 0.0, eps, False)
        return gain_and_bias(y, weight, bias, normalization.channel_shape(y), context)
    if not ours:
        return None
    if transforms_active():
        shape = normalization.channel_shape(input)
        gain, shift = (None if t is None else t.view(shape) for t in (weight, bias))
        return normalization.normalize(input, _other_dims(input), gain, shift, eps)
    running = running_mean, running_var, momentum
    found: Tensor = _BatchNorm.apply(input, weight, bias, running, eps, context)  # type: ignore[no-untyped-call]
    return found


def _of_pieces(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    context: KernelContext,
    pieces: PieceParameters,
) -> Tensor:
    """Batch normalization of every piece separately, as channels of one batch."""
    count, channels, rest = len(pieces.slices(x)), x.shape[1], x.shape[2:]
    rows = len(x) // count
    alike = len({stop - start for start, stop in pieces.intervals}) == 1
    if not alike or rows * rest.numel() == 1:
        raise NotSeparableError
    gain, shift = (
        None if p is None else repeat_for_pieces(p, context, pieces).flatten()
        for p in (weight, bias)
    )
    merged = (
        x.reshape(count, rows, channels, -1).transpose(0, 1).reshape(rows, count * channels, -1)
    )
    running = None, None, 0.0
    y: Tensor = _BatchNorm.apply(merged, gain, shift, running, eps, context)  # type: ignore[no-untyped-call]
    return y.view(rows, count, channels, -1).transpose(0, 1).reshape(x.shape)


def _other_dims(x: Tensor) -> tuple[int, ...]:
    """All dimensions but that of the channels."""
    return (0, *range(2, x.dim()))


Statistics = tuple[Tensor, Tensor, float]  # mean, rstd, eps


def _fused_gradients(
    gy: Tensor, x: Tensor, w: Tensor | None, statistics: Statistics
) -> tuple[Tensor, Tensor, Tensor]:
    """``w rstd P gy``, ``sum gy xh``, ``sum gy``, by torch's kernel."""
    mean, rstd, eps = statistics
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
        gy, x, w, None, None, mean, rstd, True, eps, [True, True, True]
    )
    return found


def _plain_gradients(
    gy: Tensor, x: Tensor, w: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``_fused_gradients``, from operators that can be differentiated any number of times."""
    dims = _other_dims(x)
    gain = None if w is None else w.view(normalization.channel_shape(x))
    gx, product = normalization.gradients(gy, x, gain, dims, eps)
    return gx, product.sum(dims), gy.sum(dims)


class _BatchNorm(torch.autograd.Function):
    """``w xh + b``; its gradient in the first backward is :class:`_BatchNormGradients`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor | None,
        b: Tensor | None,
        running: tuple[Tensor | None, Tensor | None, float],
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
        statistics = mean, rstd, ctx.eps
        if not torch.is_grad_enabled():
            found = _fused_gradients(gy, x, w, statistics)
        elif ctx.context.first_backward:
            found = _BatchNormGradients.apply(gy, x, w, statistics)  # type: ignore[no-untyped-call]
        else:
            found = _plain_gradients(gy, x, w, ctx.eps)
        wanted = zip(found, ctx.needs_input_grad, strict=False)
        return *(g if needed else None for g, needed in wanted), None, None, None


class _BatchNormGradients(torch.autograd.Function):
    """``gx, gw, gb``, and their backward by ``gy``, ``x`` and ``w``."""

    @staticmethod
    def forward(
        ctx: Any, gy: Tensor, x: Tensor, w: Tensor | None, statistics: Statistics
    ) -> tuple[Tensor, ...]:
        gx, gw, gb = _fused_gradients(gy, x, w, statistics)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w, gw, *statistics[:2])
        ctx.eps = statistics[2]
        return gx, gw, gb

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any, saved: Saved, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w, gw, mean, rstd = saved
        statistics, ones = (mean, rstd, ctx.eps), torch.ones_like(mean)
        gain = ones if w is None else w
        a = torch.zeros_like(gy) if a is None else a
        v = torch.zeros_like(mean) if v is None else v
        share = gain * rstd / (x.numel() // x.shape[1])
        shape = normalization.channel_shape(x)

        def fit(values: Tensor) -> Tensor:
            return values.view(shape)

        pa, a_xh, _ = _fused_gradients(a, x, ones, statistics)  # rstd P a, sum a xh
        t = (gy * pa).sum(_other_dims(x))
        slope = v * rstd
        shift = -slope * mean if vb is None else vb - slope * mean
        ggy = torch.addcmul(fit(shift), x, fit(slope)).addcmul_(pa, fit(gain))
        q = (a * fit(-share * gw)).addcmul_(gy, fit(v - share * a_xh))
        gx, _, _ = _fused_gradients(q, x, ones, statistics)
        slope = -share * t * rstd
        gx.addcmul_(x, fit(slope)).add_(fit(-slope * mean))
        return ggy, gx, None if w is None else t, None
