"""Nineteen small networks for 8x8 images: what the trainability suite starts and trains."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from neuroinit.experiments.models.small_networks import (
    Activation,
    Residual,
    plain_mlp,
    residual_mlp,
)

CHANNELS = 12
SIDE = 8  # of an image; its rows are the tokens of attention and the steps of recurrence


class Attention(nn.Module):
    """Self-attention over tokens, nothing around it."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at every token."""
        return torch.as_tensor(self.attend(x, x, x, need_weights=False)[0])


class Transformer(nn.Module):
    """Pre-norm blocks over the rows of an image, with LayerNorm or without."""

    def __init__(self, blocks: int, width: int = 24, normalize: bool = True) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.LayerNorm if normalize else lambda _: nn.Identity()
        self.embed = nn.Linear(SIDE, width)
        self.place = nn.Parameter(0.02 * torch.randn(SIDE, width))
        body = []
        for _ in range(blocks):
            body.append(Residual(norm(width), Attention(width)))
            perceptron = (nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            body.append(Residual(norm(width), *perceptron))
        self.body = nn.Sequential(*body, norm(width))
        self.head = nn.Linear(SIDE * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, from all tokens."""
        tokens = self.embed(x.flatten(0, 1)) + self.place
        return torch.as_tensor(self.head(self.body(tokens).flatten(1)))


class Recurrent(nn.Module):
    """Rows of an image, one after the other; the last state is classified."""

    def __init__(self, kind: type[nn.RNNBase], width: int = 48) -> None:
        super().__init__()
        self.cell = kind(SIDE, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        states, _ = self.cell(x.flatten(0, 1))
        return torch.as_tensor(self.head(states[:, -1]))


def normalized_mlp(blocks: int, width: int = 48) -> nn.Module:
    """Residual perceptrons, each behind a LayerNorm."""
    body = [
        Residual(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        for _ in range(blocks)
    ]
    head = (nn.LayerNorm(width), nn.Linear(width, 10))
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, width), *body, *head)


def cnn(depth: int, activation: Activation = nn.ReLU, norm: bool = False) -> nn.Module:
    """Plain 3x3 convolutions on 4x4 features, with BatchNorm or without, and a classifier."""
    layers: list[nn.Module] = [nn.Conv2d(1, CHANNELS, 3, 2, padding=1), activation()]
    for _ in range(depth - 1):
        between = [nn.BatchNorm2d(CHANNELS)] if norm else []
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), *between, activation()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(SIDE * SIDE // 4 * CHANNELS, 10))


def pooled_cnn(depth: int) -> nn.Module:
    """Plain convolutions, and the mean over the image."""
    *layers, _, _ = cnn(depth)
    layers[-2] = nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, 2, padding=1)
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * CHANNELS, 10))
    return nn.Sequential(*layers, *pooled)


def residual_cnn(blocks: int, activation: Activation = nn.ReLU) -> nn.Module:
    """Blocks of two convolutions on 4x4 features."""
    body = [
        Residual(
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
            activation(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
            activation(),
        )
        for _ in range(blocks)
    ]
    head = (nn.Flatten(), nn.Linear(SIDE * SIDE // 4 * CHANNELS, 10))
    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3, 2, padding=1), *body, *head)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP, 3 ReLU layers": lambda: plain_mlp(3, 48),
    "MLP, 3 ReLU layers, wide": lambda: plain_mlp(3, 256),
    "MLP, 10 ReLU layers": lambda: plain_mlp(10, 48),
    "MLP, 10 tanh layers": lambda: plain_mlp(10, 48, nn.Tanh),
    "MLP, 12 GELU layers, narrow": lambda: plain_mlp(12, 24, nn.GELU),
    "residual MLP, 20 ReLU blocks": lambda: residual_mlp(20, 48),
    "residual MLP, 10 tanh blocks": lambda: residual_mlp(10, 48, nn.Tanh),
    "LayerNorm MLP, 8 GELU blocks": lambda: normalized_mlp(8),
    "CNN, 4 ReLU layers": lambda: cnn(4),
    "CNN, 10 ReLU layers": lambda: cnn(10),
    "CNN, 8 tanh layers": lambda: cnn(8, nn.Tanh),
    "CNN, 6 ReLU layers, pooled": lambda: pooled_cnn(6),
    "residual CNN, 8 ReLU blocks": lambda: residual_cnn(8),
    "residual CNN, 5 GELU blocks": lambda: residual_cnn(5, nn.GELU),
    "BatchNorm CNN, 6 ReLU layers": lambda: cnn(6, norm=True),
    "transformer, 2 blocks, LayerNorm": lambda: Transformer(2),
    "transformer, 3 blocks, no normalization": lambda: Transformer(3, normalize=False),
    "recurrent, tanh": lambda: Recurrent(nn.RNN),
    "recurrent, LSTM": lambda: Recurrent(nn.LSTM),
}
