"""Thirteen networks for 8x8 color images that were made after the default had been chosen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from neuroinit.experiments.models.small_networks import Activation, Residual

SIDE, COLORS, CLASSES = 8, 3, 10
PIXELS = COLORS * SIDE * SIDE


class Rows(nn.Module):
    """The rows of an image as a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        """Eight vectors of 24 numbers."""
        return x.transpose(1, 2).flatten(2)


class LastState(nn.Module):
    """A recurrent network; its last state."""

    def __init__(self, cell: nn.RNNBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        """One vector an image."""
        return torch.as_tensor(self.cell(x)[0][:, -1])


class Highway(nn.Module):
    """A layer whose gate chooses between its output and its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """A mixture."""
        gate = torch.sigmoid(self.gate(x))
        return torch.add(gate * torch.relu(self.change(x)), (1 - gate) * x)


def mlp(depth: int, width: int, activation: Activation, norm: bool = False) -> nn.Module:
    """Linear layers of one width, with BatchNorm or without."""
    layers: list[nn.Module] = [nn.Flatten()]
    for k in range(depth):
        between = [nn.BatchNorm1d(width)] if norm else []
        layers += [nn.Linear(width if k else PIXELS, width), *between, activation()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def residual_mlp(blocks: int, width: int, activation: Activation) -> nn.Module:
    """Residual perceptrons with one hidden layer."""
    body = [
        Residual(nn.Linear(width, 2 * width), activation(), nn.Linear(2 * width, width))
        for _ in range(blocks)
    ]
    return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, width), *body, nn.Linear(width, CLASSES))


def cnn(depth: int, width: int, activation: Activation, pooled: bool = False) -> nn.Module:
    """Plain 3x3 convolutions; the mean over the image, or all of it, is classified."""
    layers: list[nn.Module] = [nn.Conv2d(COLORS, width, 3, 2, padding=1), activation()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), activation()]
    pool = nn.AdaptiveAvgPool2d(1 if pooled else 4)
    return nn.Sequential(*layers, pool, nn.Flatten(), nn.Linear((1 if pooled else 16) * width, 10))


def residual_cnn(blocks: int, width: int, activation: Activation, norm: bool = False) -> nn.Module:
    """Residual blocks of one convolution, with GroupNorm or without."""
    body = [
        Residual(
            *([nn.GroupNorm(2, width)] if norm else []),
            nn.Conv2d(width, width, 3, padding=1),
            activation(),
        )
        for _ in range(blocks)
    ]
    head = (nn.Flatten(), nn.Linear(16 * width, CLASSES))
    return nn.Sequential(nn.Conv2d(COLORS, width, 3, 2, padding=1), *body, *head)


def recurrent(cell: type[nn.RNNBase], width: int, layers: int) -> nn.Module:
    """A recurrent network over the rows."""
    states = LastState(cell(COLORS * SIDE, width, layers, batch_first=True))
    return nn.Sequential(Rows(), states, nn.Linear(width, CLASSES))


def transformer(blocks: int, width: int, first: bool) -> nn.Module:
    """torch's own transformer over the rows, LayerNorm before or after, without dropout."""
    block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True, norm_first=first)
    body = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
    head = (nn.Flatten(), nn.Linear(SIDE * width, CLASSES))
    return nn.Sequential(Rows(), nn.Linear(COLORS * SIDE, width), body, *head)


FRESH_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP, 5 SELU layers": lambda: mlp(5, 80, nn.SELU),
    "MLP, 14 tanh layers, narrow": lambda: mlp(14, 32, nn.Tanh),
    "MLP, 7 SiLU layers": lambda: mlp(7, 64, nn.SiLU),
    "MLP, 6 ReLU layers, BatchNorm": lambda: mlp(6, 56, nn.ReLU, norm=True),
    "highway, 8 layers": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(PIXELS, 48), *[Highway(48) for _ in range(8)], nn.Linear(48, 10)
    ),
    "residual MLP, 14 Mish blocks": lambda: residual_mlp(14, 40, nn.Mish),
    "CNN, 5 LeakyReLU layers": lambda: cnn(5, 14, nn.LeakyReLU),
    "CNN, 9 ELU layers": lambda: cnn(9, 10, nn.ELU),
    "CNN, 7 tanh layers, pooled": lambda: cnn(7, 14, nn.Tanh, pooled=True),
    "residual CNN, 7 SiLU blocks": lambda: residual_cnn(7, 10, nn.SiLU),
    "residual CNN, 5 ReLU blocks, GroupNorm": lambda: residual_cnn(5, 10, nn.ReLU, norm=True),
    "LSTM, 2 layers": lambda: recurrent(nn.LSTM, 32, 2),
    "transformer, 4 blocks, Post-LN": lambda: transformer(4, 24, first=False),
}
