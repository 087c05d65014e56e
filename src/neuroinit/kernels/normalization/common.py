"""Formulas that batch, layer and instance normalization share.

torch's fused kernels have a correct gradient and double backward. Their third derivative is wrong
without an error (torch 2.13, float64: off by 4 to 50%), because it treats the saved mean and
deviation as constants: https://github.com/pytorch/pytorch/issues/175754 for LayerNorm and 186256
for BatchNorm. MetaInit needs the third derivative, and so does a second derivative of a loss that
itself takes a gradient. The formulas here are correct to any order.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

Dims = tuple[int, ...]
PLAIN: set[type] = {torch.Tensor, nn.Parameter}  # types of tensors that torch's own kernels take


def standardize(x: Tensor, dims: Dims, eps: float) -> tuple[Tensor, Tensor]:
    """``xh = (x - mean) rstd`` and ``rstd = 1 / sqrt(var + eps)``, statistics over ``dims``."""
    centered = x - x.mean(dims, keepdim=True)
    rstd = (centered.square().mean(dims, keepdim=True) + eps).rsqrt()
    return centered * rstd, rstd


def normalize(
    x: Tensor, dims: Dims, gain: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """``gain xh + bias`` from operators of torch; gain and bias broadcast against ``x``."""
    y, _ = standardize(x, dims, eps)
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


def gradients(
    gy: Tensor, x: Tensor, gain: Tensor | None, dims: Dims, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient by ``x`` of ``<gy, gain xh + bias>``, and ``gy xh``, whose sum is by the gain.

    With ``u = gain gy`` and means over ``dims``: ``gx = rstd (u - mean(u) - xh mean(u xh))``.
    """
    xh, rstd = standardize(x, dims, eps)
    u = gy if gain is None else gy * gain
    gx = rstd * (u - u.mean(dims, keepdim=True) - xh * (u * xh).mean(dims, keepdim=True))
    return gx, gy * xh


def channel_shape(x: Tensor) -> tuple[int, ...]:
    """The shape of one value for every channel of ``x``, which is its second dimension."""
    return (-1, *[1] * (x.dim() - 2))


def are_plain(*tensors: Tensor | None) -> bool:
    """Whether no tensor is of a subclass, such as a ``DTensor``: those are left to torch."""
    return all(t is None or type(t) in PLAIN for t in tensors)
