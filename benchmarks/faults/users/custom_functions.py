"""Custom functions whose second derivative is wrong, or right."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import neuroinit as ni
from benchmarks.faults.users.checks import (
    Case,
    near,
    refused,
    told,
    unchanged,
    untold,
)
from benchmarks.faults.users.small import METHODS, data, network


class _Cube(torch.autograd.Function):
    """``x ** 3``; subclasses are wrong in some way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class _Detached(_Cube):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 3 * ctx.saved_tensors[0].detach() ** 2 * grad


class _NumberOnly(_Cube):
    """Saves numbers instead of tensors with a graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.slope = (3 * x**2).detach()
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return ctx.slope * grad


class _NoGradient(_Cube):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        with torch.no_grad():
            slope = 3 * ctx.saved_tensors[0] ** 2
        return slope * grad


class _Tenth(_Cube):
    """A second derivative that is a tenth off."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        x = ctx.saved_tensors[0]
        return (3 * x.detach() ** 2 + 0.9 * 6 * x.detach() * (x - x.detach())) * grad


class _Separate(torch.autograd.Function):
    """The same in the style of ``setup_context``."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.slope = 3 * inputs[0].detach() ** 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return ctx.slope * grad


class _Once(_Cube):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class Custom(nn.Module):
    """Applies a function."""

    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function of the input."""
        return self.function.apply(x)  # type: ignore[no-any-return]


def _wrong(function: Any, method: ni.Initialization, dtype: torch.dtype, engine: str) -> None:
    model = network(Custom(function), dtype=dtype)
    batches = [(x.to(dtype), y) for x, y in data()]
    with unchanged(model), told(f"The double backward of `{function.__name__}` seems to be wrong"):
        ni.optimize(model, batches, method=method, engine=engine)


def _wrong_in_loss(function: Any) -> None:
    model = network()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(function.apply(y), t)

    with unchanged(model), told(f"`{function.__name__}` seems to be wrong"):
        ni.optimize(model, data(), loss, METHODS["`NIO` with a bound"])


def _right(function: Any, method: ni.Initialization) -> None:
    model = network(Custom(function))
    with unchanged(model), untold("double backward"):
        found = ni.optimize(model, data(), method=method)

    class Power(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x**3

    near(found.scales, ni.optimize(network(Power()), data(), method=method).scales)


def _once() -> None:
    model = network(Custom(_Once))
    with unchanged(model), refused(RuntimeError, "once_differentiable", "engine='differences'"):
        ni.optimize(model, data(), method=METHODS["`NIO` with a bound"])


def cases() -> Iterator[Case]:
    """Item 4."""
    wrong = (_Detached, _NumberOnly, _NoGradient, _Tenth, _Separate)
    for function in wrong:
        for name, method in METHODS.items():
            yield Case(
                4,
                f"{function.__name__[1:]}: {name}",
                partial(_wrong, function, method, torch.float64, "auto"),
            )
        yield Case(4, f"{function.__name__[1:]}: in the loss", partial(_wrong_in_loss, function))
        for engine in ("keep", "stream"):
            yield Case(
                4,
                f"{function.__name__[1:]}: float32, `{engine}`",
                partial(_wrong, function, METHODS["`NIO` with a bound"], torch.float32, engine),
            )
    for name, method in METHODS.items():
        yield Case(4, f"a right function: {name}", partial(_right, _Cube, method))
    yield Case(4, "marked `once_differentiable`", _once)
