"""ReLU and GELU with a double backward of few passes through memory.

Torch's double backward of ReLU makes a tensor of zeros for its input and adds it; that of GELU
takes a new tensor for every operator. With ``y = f(x)`` and the direction ``a`` of the gradient
``f'(x) gy``, it is ``f'(x) a`` by ``gy`` and ``f''(x) gy a`` by ``x``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.context import Saved, without_function_mode

PLAIN: list[dict[str, Any]] = [{"inplace": False}, {"approximate": "none"}]
ACTIVATIONS = ("relu", "gelu")


def activated(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """A call of ReLU that is not in place, or of GELU in its exact form; ``None`` for others."""
    x = args[0] if args else kwargs.get("input")
    plain = {k: v for k, v in kwargs.items() if k != "input"} in ({}, *PLAIN)
    if len(args) > 1 or not plain or not isinstance(x, Tensor):
        return None
    found: Tensor = (_ReLU if name == "relu" else _GELU).apply(x)  # type: ignore[no-untyped-call]
    return found


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> Tensor:
        (y,) = saved
        found: Tensor = _ReLUBackward.apply(gy, y)  # type: ignore[no-untyped-call]
        return found


class _ReLUBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gy: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        found: Tensor = torch.ops.aten.threshold_backward(gy, y, 0)
        return found

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, a: Tensor) -> tuple[Tensor, None]:
        (y,) = saved
        return torch.ops.aten.threshold_backward(a, y, 0), None


class _GELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, gy: Tensor) -> Tensor:
        (x,) = saved
        found: Tensor = _GELUBackward.apply(gy, x)  # type: ignore[no-untyped-call]
        return found


class _GELUBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gy: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(gy, x)
        found: Tensor = torch.ops.aten.gelu_backward(gy, x)
        return found

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, a: Tensor) -> tuple[Tensor, Tensor]:
        """``f''(x) = (2 - x^2) exp(-x^2 / 2) / sqrt(2 pi)``."""
        gy, x = saved
        t = x.square().mul_(-0.5)
        g = t.exp().mul_(t.add_(1)).mul_(gy).mul_(a).mul_(2 / math.sqrt(2 * math.pi))
        return torch.ops.aten.gelu_backward(a, x), g
