"""Small networks for images of 8x8 pixels, for the demo, the examples and the tutorials."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]


class Residual(nn.Module):
    """``x + branch(x)``."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch."""
        return torch.add(x, self.branch(x))


def residual_mlp(blocks: int, width: int = 64, activation: Activation = nn.ReLU) -> nn.Module:
    """A residual network of ``blocks`` blocks with two linear layers each."""
    body = [
        Residual(nn.Linear(width, width), activation(), nn.Linear(width, width), activation())
        for _ in range(blocks)
    ]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), *body, nn.Linear(width, 10))


def residual_cnn(blocks: int, width: int = 16, activation: Activation = nn.ReLU) -> nn.Module:
    """A residual network of ``blocks`` blocks with two 3x3 convolutions each."""
    body = [
        Residual(_convolution(width), activation(), _convolution(width), activation())
        for _ in range(blocks)
    ]
    stem = nn.Conv2d(1, width, 3, padding=1)
    return nn.Sequential(stem, *body, nn.Flatten(), nn.Linear(64 * width, 10))


def normalized_cnn(depth: int, width: int = 16) -> nn.Module:
    """A network of ``depth`` 3x3 convolutions with BatchNorm."""
    body = [
        m for _ in range(depth - 1) for m in (_convolution(width), nn.BatchNorm2d(width), nn.ReLU())
    ]
    stem = nn.Conv2d(1, width, 3, padding=1)
    return nn.Sequential(stem, *body, nn.Flatten(), nn.Linear(64 * width, 10))


def plain_mlp(depth: int, width: int = 64, activation: Activation = nn.ReLU) -> nn.Module:
    """A perceptron with ``depth`` hidden layers."""
    body = [m for _ in range(depth - 1) for m in (nn.Linear(width, width), activation())]
    head = nn.Linear(width, 10)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), activation(), *body, head)


def plain_cnn(depth: int, width: int = 16, activation: Activation = nn.ReLU) -> nn.Module:
    """A network of ``depth`` 3x3 convolutions without normalization."""
    body = [m for _ in range(depth - 1) for m in (_convolution(width), activation())]
    stem = nn.Conv2d(1, width, 3, padding=1)
    return nn.Sequential(stem, activation(), *body, nn.Flatten(), nn.Linear(64 * width, 10))


def _convolution(width: int) -> nn.Module:
    return nn.Conv2d(width, width, 3, padding=1)


def kaiming(model: nn.Module, biases: bool = False) -> nn.Module:
    """Give a model Kaiming-normal weights and zero biases, in place.

    Args:
        model: Its ``nn.Linear`` and ``nn.Conv2d`` layers are changed.
        biases: Keep the biases as they are.
    """
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None and not biases:
                nn.init.zeros_(module.bias)
    return model
