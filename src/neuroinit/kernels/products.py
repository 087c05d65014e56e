"""Convolutions and linear layers with a second backward that a scale's derivative needs.

A product ``y = w * x`` (a linear layer, a convolution) costs one pass forward and two back. Its
double backward in torch has six more, two of them weight gradients that we only ever contract with
the weight itself. With ``a`` what comes in for the gradient by ``x``,

    <w, gradient by w of <a, w^T * gy>> = <w * a, gy>,    <w, x^T * gy> = <x, w^T * gy>,

and ``w * a`` and ``w^T * gy`` are there anyway: four passes instead of six, and none of them by the
slow route of torch's double backward of a convolution. The contraction is the derivative by a
factor of the weight, its *scale*: a number that is one, and that autograd differentiates by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.common.tensors import HALF, dot, sum_dtype
from neuroinit.kernels.context import KernelContext, Saved, Slices, by_slice, without_function_mode


@dataclass(frozen=True)
class Linear:
    """``y = x w^T``."""

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """The product, plus a bias."""
        return F.linear(x, w, b)

    def by_input(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """The gradient by ``x``."""
        return gy @ w

    def by_weight(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """The gradient by ``w``."""
        return gy.reshape(-1, gy.shape[-1]).T @ x.reshape(-1, x.shape[-1])

    def by_bias(self, gy: Tensor) -> Tensor:
        """The gradient by a bias."""
        return gy.reshape(-1, gy.shape[-1]).sum(0)


@dataclass(frozen=True)
class Convolution:
    """A convolution of any dimension, by the arguments of ``torch.convolution``."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return (
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
        )

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """The product, plus a bias."""
        return torch.convolution(x, w, b, *self._arguments)

    def by_input(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """The gradient by ``x``."""
        return self._backward(gy, x, w, [True, False, False])[0]

    def by_weight(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """The gradient by ``w``."""
        return self._backward(gy, x, w, [False, True, False])[1]

    def by_bias(self, gy: Tensor) -> Tensor:
        """The gradient by a bias."""
        return gy.sum([0, *range(2, gy.dim())])

    def _backward(self, gy: Tensor, x: Tensor, w: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            gy, x, w, None, *self._arguments, mask
        )
        return found


Product = Linear | Convolution


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of two activations, by one pass through memory if their layouts agree."""
    if a.dtype in HALF:
        return dot(a.float(), b.float())
    if a.stride() != b.stride() or not _dense(a):
        return dot(a, b)
    flat = (a.numel(),), (1,)
    return torch.dot(a.as_strided(*flat), b.as_strided(*flat)).to(sum_dtype(a))


def _dense(a: Tensor) -> bool:
    last = torch.channels_last
    return a.is_contiguous() or (a.dim() == 4 and a.is_contiguous(memory_format=last))


class _Forward(torch.autograd.Function):
    """The product; its backward is :class:`_Backward` the first time, and plain the second.

    With slices, the gradients of the first time are those of the pieces.
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
        product: Product,
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        ctx.save_for_backward(x, w, scale)
        ctx.product, ctx.context, ctx.slices = product, context, slices
        y = product.forward(x, w.to(x.dtype), b)
        # a view made in here could not be changed in place, as `ReLU(inplace=True)` would
        return torch.ops.aten._unsafe_view(y, y.shape) if y._is_view() else y

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, scale = saved
        by_x, by_w, by_b, by_scale, *by_leaves = ctx.needs_input_grad[:6]
        if not ctx.context.second_backward:
            wanted = (by_x, by_w, by_b) if ctx.slices is None else (by_x, *by_leaves)
            settings = scale, ctx.product, wanted, ctx.slices
            gx, *found = _Backward.apply(gy, x, w, *settings)  # type: ignore[no-untyped-call]
            nothing = [None, None]
            order = [*found, None, *nothing] if ctx.slices is None else [*nothing, None, *found]
            return gx, *order, None, None, None
        w = w.to(x.dtype)
        gx = gm = None
        gb = ctx.product.by_bias(gy) if by_b else None
        if by_x:
            gx = ctx.product.by_input(gy, x, w)
            gm = inner(x, gx) if by_scale else None
        elif by_scale:
            gm = dot(w, ctx.product.by_weight(gy, x, w))
        return gx, None, gb, gm, None, None, None, None, None


class _Backward(torch.autograd.Function):
    """The gradients of a product, and their own backward by all but the weight, for its scale."""

    @staticmethod
    def forward(
        ctx: Any,
        gy: Tensor,
        x: Tensor,
        w: Tensor,
        scale: Tensor | None,
        product: Product,
        wanted: tuple[bool, bool, bool],
        slices: Slices,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w)
        ctx.product, ctx.slices = product, slices
        narrow = w.to(x.dtype)
        by_x, by_w, by_b = wanted
        gw = gb = None
        if by_w:
            gw = by_slice(lambda gy, x: product.by_weight(gy, x, narrow), slices, gy, x).to(w.dtype)
        if by_b:
            gb = by_slice(product.by_bias, slices, gy)
        return product.by_input(gy, x, narrow) if by_x else None, gw, gb

    @staticmethod
    @without_function_mode
    def backward(
        ctx: Any, saved: Saved, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w = saved
        w, v = w.to(x.dtype), None if v is None else v.to(x.dtype)
        product, (by_gy, by_x, _, by_scale, *_) = ctx.product, ctx.needs_input_grad
        ggy = gm = gx = None
        if a is not None:
            ggy = product.forward(a, w)
            gm = inner(ggy, gy) if by_scale else None
        if v is None and vb is not None:
            v = w.new_zeros(w.shape if ctx.slices is None else (len(vb), *w.shape))
        if v is not None and by_gy:
            ggy = _along(product, ctx.slices, x, v, vb, ggy)
        if v is not None and by_x:
            gx = _back_along(product, ctx.slices, gy, x, v)
        return ggy, gx, None, gm, None, None, None


def _along(
    product: Product, slices: Slices, x: Tensor, v: Tensor, vb: Tensor | None, into: Tensor | None
) -> Tensor:
    """``v * x + vb`` added to a tensor, with the direction of its own for every slice."""
    if slices is None:
        own = product.forward(x, v, vb)
        return own if into is None else into.add_(own)
    directions = zip(slices, v, [None] * len(v) if vb is None else vb, strict=True)
    if into is None:
        return torch.cat([product.forward(x[s], *direction) for s, *direction in directions])
    for s, *direction in directions:
        into[s].add_(product.forward(x[s], *direction))
    return into


def _back_along(product: Product, slices: Slices, gy: Tensor, x: Tensor, v: Tensor) -> Tensor:
    """``v^T * gy``, with the direction of its own for every slice."""
    if slices is None:
        return product.by_input(gy, x, v)
    found = [product.by_input(gy[s], x[s], w) for s, w in zip(slices, v, strict=True)]
    return torch.cat(found)


# -- in place of torch's functions -----------------------------------------------------------------


def marked(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext) -> Any:
    """The result of a call of torch's function of this name, or ``None`` where it is not for us.

    That is: the weight has no scale, the padding is a word, or a sample comes without its batch.
    """
    reader = READERS.get(name)
    weight = args[1] if len(args) > 1 else kwargs.get("weight")
    scale, pieces = context.scales.get(id(weight)), context.pieces
    if reader is None or (scale is None and (pieces is None or id(weight) not in pieces.leaves)):
        return None
    x, w, b, product = reader(*args, **kwargs)
    autocast = torch.is_autocast_enabled(x.device.type)
    if product is None or (x.dtype != w.dtype and not autocast):
        return None
    separate = (
        (None, None, None) if pieces is None else (pieces.leaf(w), pieces.leaf(b), pieces.slices(x))
    )
    if autocast:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, b = x.to(dtype), None if b is None else b.to(dtype)
    leaf, leaf_b, slices = separate
    return _Forward.apply(x, w, b, scale, leaf, leaf_b, product, context, slices)  # type: ignore[no-untyped-call]


Read = tuple[Tensor, Tensor, Tensor | None, Product | None]


def _read_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Read:
    return input, weight, bias, Linear()


def _read_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Read:
    n = weight.dim() - 2
    if isinstance(padding, str) or input.dim() != weight.dim():
        return input, weight, bias, None
    sizes = _each(stride, n), _each(padding, n), _each(dilation, n)
    return input, weight, bias, Convolution(*sizes, False, (0,) * n, groups)


def _read_transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Read:
    n = weight.dim() - 2
    if input.dim() != weight.dim():
        return input, weight, bias, None
    sizes = _each(stride, n), _each(padding, n), _each(dilation, n)
    return input, weight, bias, Convolution(*sizes, True, _each(output_padding, n), groups)


def _each(value: Any, count: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * count if len(values) == 1 else values


READERS: dict[str, Callable[..., Read]] = {
    "linear": _read_linear,
    **{f"conv{n}d": _read_convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _read_transposed for n in (1, 2, 3)},
}
