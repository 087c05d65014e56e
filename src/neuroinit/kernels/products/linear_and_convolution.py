"""Linear layers and convolutions with a cheap derivative by a scale of the weight.

Both are bilinear, written ``y = w x + b`` here, with the gradients ``gx = w^T gy``, ``gw = gy x^T``
and ``gb = sum gy``. The second backward differentiates ``<a, gx> + <v, gw> + <vb, gb>`` for given
directions ``a, v, vb``:

    by gy:                   w a + v x + vb
    by x:                    v^T gy
    by the scale c of c w:   <w a, gy>          at c = 1

In place of the last line, torch would compute the gradient by ``w``, of which we need only the
inner product with ``w``. Here it is one inner product with ``w a``, which the first line computes
anyway. When the second backward reaches the layer's forward pass, with another gradient ``gy``, the
derivative by the scale is ``<w, gy x^T> = <x, w^T gy>``: an inner product with ``w^T gy``, which is
computed anyway, too. That makes four products in place of six, and none of them uses the slow
double backward of torch's convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.tensors import dot
from neuroinit.kernels.context import (
    KernelContext,
    Saved,
    Slices,
    leaf_gradients,
    transforms_active,
    without_function_mode,
)
from neuroinit.kernels.products.bilinear import READERS, Operator, inner_product
from neuroinit.kernels.products.piece_products import (
    add_forward,
    input_gradients,
    weight_and_bias_gradients,
)
from neuroinit.kernels.products.recorded import recorded_linear, without_view


class _Layer(torch.autograd.Function):
    """``y = w x + b``.

    The gradient depends on the pass, see ``context.py``: in the first backward it is
    :class:`_LayerGradients`, by the leaves of the pieces if there are slices. In the second it is
    by the scale in place of the weight. In a backward that the user's code starts it is plain.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        b: Tensor | None,
        scale: Tensor | None,
        leaf: Tensor | None,
        leaf_b: Tensor | None,
        operator: Operator,
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        ctx.save_for_backward(x, w, scale)
        ctx.operator, ctx.context, ctx.slices = operator, context, slices
        return without_view(operator.forward(x, w.to(x.dtype), b))

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, scale = saved
        by_x, by_w, by_b, by_scale, *by_leaves = ctx.needs_input_grad[:6]
        if ctx.context.second_backward:
            gx, gs = _input_and_scale_gradient(ctx.operator, gy, x, w, by_x, by_scale)
            gb = ctx.operator.bias_gradient(gy) if by_b else None
            return gx, None, gb, gs, None, None, None, None, None
        first = ctx.context.first_backward
        slices = ctx.slices if first else None
        separate = slices is not None
        wanted = (by_x, *by_leaves) if separate else (by_x, by_w, by_b)
        if first and torch.is_grad_enabled():
            settings = scale, ctx.operator, wanted, slices
            gx, gw, gb = _LayerGradients.apply(gy, x, w, *settings)  # type: ignore[no-untyped-call]
        else:
            gx, gw, gb = _gradients(ctx.operator, gy, x, w, wanted, slices)
        by_w, by_b, *by_leaves = leaf_gradients(separate, gw, gb)
        return gx, by_w, by_b, None, *by_leaves, None, None, None


def _gradients(
    operator: Operator, gy: Tensor, x: Tensor, w: Tensor, wanted: Sequence[bool], slices: Slices
) -> tuple[Tensor | None, ...]:
    """Those of ``gx, gw, gb`` that are wanted; with slices, ``gw`` and ``gb`` of every slice."""
    by_x, by_w, by_b = wanted
    narrow = w.to(x.dtype)
    gx = operator.input_gradient(gy, x, narrow) if by_x else None
    gw, gb = weight_and_bias_gradients(operator, gy, x, narrow, slices, by_w, by_b)
    return gx, None if gw is None else gw.to(w.dtype), gb


def _input_and_scale_gradient(
    operator: Operator, gy: Tensor, x: Tensor, w: Tensor, by_x: bool, by_scale: bool
) -> tuple[Tensor | None, Tensor | None]:
    """``gx = w^T gy``, and the derivative ``<x, gx> = <w, gw>`` by the scale of the weight."""
    w = w.to(x.dtype)
    if by_x:
        gx = operator.input_gradient(gy, x, w)
        return gx, inner_product(x, gx) if by_scale else None
    return None, dot(w, operator.weight_gradient(gy, x, w)) if by_scale else None


class _LayerGradients(torch.autograd.Function):
    """``gx, gw, gb``; differentiated by ``gy``, ``x`` and the scale, not by the weight."""

    @staticmethod
    def forward(
        ctx: Any,
        gy: Tensor,
        x: Tensor,
        w: Tensor,
        scale: Tensor | None,
        operator: Operator,
        wanted: Sequence[bool],
        slices: Slices,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w)
        ctx.operator, ctx.slices = operator, slices
        gx, gw, gb = _gradients(operator, gy, x, w, wanted, slices)
        # no views, because `Keep` overwrites gradients in place
        return gx, *(None if g is None else without_view(g) for g in (gw, gb))

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any, saved: Saved, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w = saved
        w, v = w.to(x.dtype), None if v is None else v.to(x.dtype)
        if v is not None and v.device.type != "cpu":  # one copy saves one in each of two products
            v = v.contiguous()
        operator, (by_gy, by_x, _, by_scale, *_) = ctx.operator, ctx.needs_input_grad
        ggy = gs = gx = None
        if a is not None:
            ggy = operator.forward(a, w)
            gs = inner_product(ggy, gy) if by_scale else None
        if v is None and vb is not None:
            v = w.new_zeros(w.shape if ctx.slices is None else (len(vb), *w.shape))
        if v is not None and by_gy:
            ggy = add_forward(operator, ctx.slices, x, v, vb, ggy)
        if v is not None and by_x:
            gx = input_gradients(operator, gy, x, v, ctx.slices)
        return ggy, gx, None, gs, None, None, None


# -- in place of torch's functions ----------------------------------------------------------------


def linear_or_convolution(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext
) -> Tensor | None:
    """``F.linear``, ``addmm``, ``F.conv1d`` to ``3d``, ``F.conv_transpose1d`` ...; or ``None``.

    ``None`` leaves the call to torch, whose derivative is by the weight itself: the weight has
    neither a scale nor a leaf, a transform is active, the padding is a string, the dtypes differ,
    or the input has no batch dimension.

    Args:
        name: The name of torch's function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        context: Scales and pieces.
    """
    position = 2 if name == "addmm" else 1
    weight = args[position] if len(args) > position else kwargs.get("weight")
    if not context.knows(weight):
        return None
    x, w, b, operator = READERS[name](*args, **kwargs)
    autocast = torch.is_autocast_enabled(x.device.type)
    if operator is None or (x.dtype != w.dtype and not autocast) or transforms_active():
        return None
    pieces, leaf, leaf_b, slices = context.pieces, None, None, None
    if pieces is not None:
        leaf, leaf_b, slices = pieces.leaf(w), pieces.leaf(b), pieces.slices(x)
        if name == "linear" and not autocast:
            found = recorded_linear(x, w, b, leaf, leaf_b, context, slices)
            if found is not None:
                return found
    if autocast:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, b = x.to(dtype), None if b is None else b.to(dtype)
    settings = context.scales.get(id(w)), leaf, leaf_b, operator, context, slices
    y: Tensor = _Layer.apply(x, w, b, *settings)  # type: ignore[no-untyped-call]
    return y
