"""Cases that must end in an error."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tests.utils.architectures.batches import (
    CLASSES,
    VOCABULARY,
    Case,
    double,
    token_labels,
    vectors,
)
from tests.utils.architectures.operators import Tokens
from tests.utils.architectures.parameters import Scaled, plain


def cdist_has_double_backward() -> bool:
    """Since torch 2.15. Not to be called on import: the test device has to be registered first."""
    points = torch.randn(2, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        torch.cdist(points, points + 1).sum(), points, create_graph=True
    )
    try:
        gradient.sum().backward()
    except RuntimeError:
        return False
    return True


class Distances(nn.Module):
    """torch.cdist has no double backward before torch 2.15."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(CLASSES, 4))

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, self.centers)


class CubeOnce(torch.autograd.Function):
    """``x ** 3``, whose backward cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class OnceDifferentiable(nn.Module):
    """A custom function whose backward can't be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()

    def forward(self, x: Tensor) -> Tensor:
        return CubeOnce.apply(self.body(x))


def lazy() -> nn.Module:
    """A LazyLinear that has seen no data has no parameters to scale yet."""
    return nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.Linear(6, CLASSES))


NO_DOUBLE_BACKWARD: list[Case] = [
    double("cdist", Distances, vectors(4)),
    double("once_differentiable", OnceDifferentiable, vectors(4)),
    double("embedding_bag", lambda: Tokens(nn.EmbeddingBag(VOCABULARY, 6)), token_labels),
]
LAZY = double("lazy", lazy, vectors(4))
CONSTANT_LOSS = double("constant_loss", lambda: Scaled(0.0), vectors(4))
NAN_LOSS = double("nan_loss", lambda: Scaled(float("nan")), vectors(4))
BROKEN: list[Case] = [LAZY, CONSTANT_LOSS, NAN_LOSS]
