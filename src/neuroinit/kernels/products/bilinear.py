"""Linear layers and convolutions as bilinear operators of input and weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.common.tensors import HALF, dot, sum_dtype

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Linear:
    """``y = x w^T + b`` for ``x`` of shape ``(..., in)`` and ``w`` of shape ``(out, in)``.

    Args:
        transposed: The weight has the shape ``(in, out)``, as in the layers of GPT-2.
    """

    transposed: bool = False

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """``x w^T + b``, of shape ``(..., out)``."""
        return F.linear(x, self.usual(w), b)

    def input_gradient(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """``gy w``, of the shape of ``x``."""
        return gy @ self.usual(w)

    def weight_gradient(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """``gy^T x`` over all rows, of the shape of ``w``."""
        return self.usual(gy.reshape(-1, gy.shape[-1]).T @ x.reshape(-1, x.shape[-1]))

    def bias_gradient(self, gy: Tensor) -> Tensor:
        """The sum of ``gy`` over all rows, of shape ``(out,)``."""
        return gy.reshape(-1, gy.shape[-1]).sum(0)

    def usual(self, w: Tensor) -> Tensor:
        """Weights ``(..., out, in)`` from those of the layer, and the other way round."""
        return w.mT if self.transposed else w


@dataclass(frozen=True)
class Convolution:
    """A convolution of any dimension, with the arguments of ``torch.convolution``.

    ``x`` has the shape ``(samples, in, *size)``.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    def is_product(self, w: Tensor) -> bool:
        """Whether this is a matrix product for every position: a 1x1 convolution."""
        plain = {*self.stride, *w.shape[2:]} == {1} and not any(self.padding)
        return plain and self.groups == 1 and not self.transposed

    @property
    def _arguments(self) -> tuple[Sizes, Sizes, Sizes, bool, Sizes, int]:
        sizes = self.stride, self.padding, self.dilation
        return (*sizes, self.transposed, self.output_padding, self.groups)

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """The convolution of ``x`` with ``w``, plus ``b`` for every output channel."""
        return torch.convolution(x, w, b, *self._arguments)

    def input_gradient(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """The gradient of ``<gy, y>`` by ``x``; of ``x`` only the shape is used."""
        return self._backward(gy, x, w, [True, False, False])[0]

    def weight_gradient(self, gy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """The gradient of ``<gy, y>`` by ``w``; of ``w`` only the shape is used."""
        return self._backward(gy, x, w, [False, True, False])[1]

    def bias_gradient(self, gy: Tensor) -> Tensor:
        """The sum of ``gy`` over samples and positions, one entry for every output channel."""
        return gy.sum([0, *range(2, gy.dim())])

    def _backward(self, gy: Tensor, x: Tensor, w: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            gy, x, w, None, *self._arguments, mask
        )
        return found


Operator = Linear | Convolution


def inner_product(a: Tensor, b: Tensor) -> Tensor:
    """``<a, b>`` of two activations, in float64; one pass through memory if their layouts agree."""
    if a.dtype in HALF:
        return dot(a.float(), b.float())
    if a.stride() != b.stride() or not _is_dense(a):
        return dot(a, b)
    flat = (a.numel(),), (1,)
    return torch.dot(a.as_strided(*flat), b.as_strided(*flat)).to(sum_dtype(a))


def _is_dense(a: Tensor) -> bool:
    """Whether the entries fill a block of memory without gaps."""
    return a.is_contiguous() or a.is_contiguous(memory_format=torch.channels_last)


# -- how torch's functions are called ------------------------------------------------------------

Call = tuple[Tensor, Tensor, Tensor | None, Operator | None]


def _read_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call:
    return input, weight, bias, Linear()


def _read_product(
    bias: Tensor, input: Tensor, weight: Tensor, beta: float = 1, alpha: float = 1
) -> Call:
    """``torch.addmm``, as in the layers of GPT-2."""
    plain = bias.dim() == 1 and beta == alpha == 1
    return input, weight, bias, Linear(transposed=True) if plain else None


def _read_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sizes = 1,
    padding: str | int | Sizes = 0,
    dilation: int | Sizes = 1,
    groups: int = 1,
) -> Call:
    settings = stride, padding, dilation, False, 0, groups
    return input, weight, bias, _convolution(input, weight, *settings)


def _read_transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sizes = 1,
    padding: int | Sizes = 0,
    output_padding: int | Sizes = 0,
    groups: int = 1,
    dilation: int | Sizes = 1,
) -> Call:
    settings = stride, padding, dilation, True, output_padding, groups
    return input, weight, bias, _convolution(input, weight, *settings)


def _convolution(
    input: Tensor,
    weight: Tensor,
    stride: int | Sizes,
    padding: str | int | Sizes,
    dilation: int | Sizes,
    transposed: bool,
    output_padding: int | Sizes,
    groups: int,
) -> Convolution | None:
    n = weight.dim() - 2
    if isinstance(padding, str) or input.dim() != weight.dim():
        return None
    sizes = _repeat(stride, n), _repeat(padding, n), _repeat(dilation, n)
    return Convolution(*sizes, transposed, _repeat(output_padding, n), groups)


def _repeat(value: int | Sizes, count: int) -> tuple[int, ...]:
    """One size for every dimension: ``3`` and ``(3,)`` are ``(3, 3)`` for two of them."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * count if len(values) == 1 else values


# name of torch's function -> (input, weight, bias, operator) from its arguments; the operator is
# `None` for a call that is left to torch
READERS: dict[str, Callable[..., Call]] = {
    "linear": _read_linear,
    "addmm": _read_product,
    **{f"conv{n}d": _read_convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _read_transposed for n in (1, 2, 3)},
}
