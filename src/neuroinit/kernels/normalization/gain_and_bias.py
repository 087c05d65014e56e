"""Normalization layers whose gain and bias are separate operators: instance, group and RMS norm.

In a pass over several pieces the gradients of gain and bias are kept apart by ``broadcasting.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.broadcasting import broadcast_parameter
from neuroinit.kernels.context import KernelContext
from neuroinit.kernels.normalization.common import channel_shape
from neuroinit.kernels.normalization.layer_norm import layer_norm


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    context: KernelContext,
) -> Tensor | None:
    """``F.instance_norm``: every channel of every sample ``(samples, channels, ...)`` normalized.

    ``None`` leaves the call to torch: running statistics are used, which are not updated here, or
    dtypes differ.
    """
    alike = all(t is None or t.dtype == input.dtype for t in (weight, bias))
    if not use_input_stats or not alike or math.prod(input.shape[2:]) < 2:
        return None
    y = layer_norm(input, input.shape[2:], eps=eps, context=context)
    return None if y is None else gain_and_bias(y, weight, bias, channel_shape(y), context)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    context: KernelContext,
) -> Tensor | None:
    """``F.group_norm`` of ``(samples, channels, ...)`` in pieces; ``None`` in all other passes."""
    if context.pieces is None or weight is None:
        return None
    y = F.group_norm(input, num_groups, eps=eps)
    return gain_and_bias(y, weight, bias, channel_shape(y), context)


def rms_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    context: KernelContext,
) -> Tensor | None:
    """``F.rms_norm`` of ``(..., *normalized_shape)`` in pieces; ``None`` in all other passes."""
    if context.pieces is None or weight is None:
        return None
    y = F.rms_norm(input, normalized_shape, eps=eps)
    return gain_and_bias(y, weight, None, weight.shape, context)


def gain_and_bias(
    y: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    shape: Sequence[int],
    context: KernelContext,
) -> Tensor:
    """``gain y + bias`` with gain and bias in a shape that broadcasts against ``y``."""
    for operator, parameter in ((torch.mul, gain), (torch.add, bias)):
        if parameter is None:
            continue
        p = broadcast_parameter(Tensor.view, (parameter, shape), {}, context)
        p = parameter.view(shape) if p is None else p
        found = broadcast_parameter(operator, (y, p), {}, context)
        y = operator(y, p) if found is None else found
    return y
