"""Convolutions and linear layers with a second backward that a scale's derivative needs.

A product ``y = w * x`` (a linear layer, a convolution) costs one pass forward and two back. Its
double backward in torch has six more, two of them weight gradients that we only ever contract with
the weight itself. With ``a`` what comes in for the gradient by ``x``,

    <w, gradient by w of <a, w^T * gy>> = <w * a, gy>,    <w, x^T * gy> = <x, w^T * gy>,

and ``w * a`` and ``w^T * gy`` are there anyway: four passes instead of six, and none of them by the
slow route of torch's double backward of a convolution. The contraction is the derivative by a
factor of the weight, its *mark*: a number that is one, and that autograd differentiates by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.vectors import HALF, dot, wide


@dataclass
class Marks:
    """The marks of weights by the weight's id, and which backward is under way."""

    of: dict[int, Tensor] = field(default_factory=dict)
    second: bool = False


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
    return torch.dot(a.as_strided(*flat), b.as_strided(*flat)).to(wide(a))


def _dense(a: Tensor) -> bool:
    last = torch.channels_last
    return a.is_contiguous() or (a.dim() == 4 and a.is_contiguous(memory_format=last))


class _Forward(torch.autograd.Function):
    """The product; its backward is :class:`_Backward` the first time, and plain the second."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        b: Tensor | None,
        mark: Tensor,
        product: Product,
        marks: Marks,
    ) -> Tensor:
        ctx.save_for_backward(x, w, mark)
        ctx.product, ctx.marks = product, marks
        y = product.forward(x, w.to(x.dtype), b)
        # a view made in here could not be changed in place, as `ReLU(inplace=True)` would
        return torch.ops.aten._unsafe_view(y, y.shape) if y._is_view() else y

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, mark = ctx.saved_tensors
        by_x, _, by_b, *_ = ctx.needs_input_grad
        if not ctx.marks.second:
            settings = mark, ctx.product, by_x, by_b
            gx, gw, gb = _Backward.apply(gy, x, w, *settings)  # type: ignore[no-untyped-call]
            return gx, gw, gb, None, None, None
        w = w.to(x.dtype)
        gb = ctx.product.by_bias(gy) if by_b else None
        if by_x:
            gx = ctx.product.by_input(gy, x, w)
            return gx, None, gb, inner(x, gx), None, None
        return None, None, gb, dot(w, ctx.product.by_weight(gy, x, w)), None, None


class _Backward(torch.autograd.Function):
    """The gradients of a product, and their own backward by all but the weight, for its mark."""

    @staticmethod
    def forward(
        ctx: Any,
        gy: Tensor,
        x: Tensor,
        w: Tensor,
        mark: Tensor,
        product: Product,
        by_x: bool,
        by_b: bool,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gy, x, w)
        ctx.product = product
        narrow = w.to(x.dtype)
        return (
            product.by_input(gy, x, narrow) if by_x else None,
            product.by_weight(gy, x, narrow).to(w.dtype),
            product.by_bias(gy) if by_b else None,
        )

    @staticmethod
    def backward(
        ctx: Any, a: Tensor | None, v: Tensor | None, vb: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gy, x, w = ctx.saved_tensors
        w, v = w.to(x.dtype), None if v is None else v.to(x.dtype)
        product, (by_gy, by_x, *_) = ctx.product, ctx.needs_input_grad
        ggy = by_mark = gx = None
        if a is not None:
            ggy = product.forward(a, w)
            by_mark = inner(ggy, gy)
        if v is None and vb is not None:
            v = torch.zeros_like(w)
        if v is not None and by_gy:
            own = product.forward(x, v, vb)
            ggy = own if ggy is None else ggy.add_(own)
        if v is not None and by_x:
            gx = product.by_input(gy, x, v)
        return ggy, gx, None, by_mark, None, None, None


# -- in place of torch's functions -----------------------------------------------------------------


def marked(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], marks: Marks) -> Any:
    """The result of a call of torch's function of this name, or ``None`` where it is not for us.

    That is: the weight has no mark, the padding is a word, or a sample comes without its batch.
    """
    reader = READERS.get(name)
    weight = args[1] if len(args) > 1 else kwargs.get("weight")
    mark = marks.of.get(id(weight))
    if reader is None or mark is None:
        return None
    x, w, b, product = reader(*args, **kwargs)
    autocast = torch.is_autocast_enabled(x.device.type)
    if product is None or (x.dtype != w.dtype and not autocast):
        return None
    if autocast:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, b = x.to(dtype), None if b is None else b.to(dtype)
    return _Forward.apply(x, w, b, mark, product, marks)  # type: ignore[no-untyped-call]


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
