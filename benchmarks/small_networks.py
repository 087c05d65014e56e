"""Eighteen small networks for 8x8 images: what the trainability suite starts and trains."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from neuroinit.experiments.networks import (
    Residual,
    normalized_cnn,
    plain_cnn,
    plain_mlp,
    residual_cnn,
    residual_mlp,
)

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

    def __init__(self, blocks: int, width: int = 32, normalize: bool = True) -> None:
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
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, from the mean of all tokens."""
        rows = x.flatten(0, 1) if x.shape[1] == 1 else x.mean(1)
        return torch.as_tensor(self.head(self.body(self.embed(rows) + self.place).mean(1)))


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


def pooled_cnn(depth: int, width: int = 12) -> nn.Module:
    """Plain convolutions with strides, and the mean over what is left of the image."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
    for k in range(depth - 1):
        stride = 2 if k in (1, depth - 3) else 1
        layers += [nn.Conv2d(width, width, 3, stride, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP, 3 ReLU layers": lambda: plain_mlp(3, 48),
    "MLP, 3 ReLU layers, wide": lambda: plain_mlp(3, 384),
    "MLP, 10 ReLU layers": lambda: plain_mlp(10, 48),
    "MLP, 10 tanh layers": lambda: plain_mlp(10, 48, nn.Tanh),
    "MLP, 20 GELU layers, narrow": lambda: plain_mlp(20, 24, nn.GELU),
    "residual MLP, 20 ReLU blocks": lambda: residual_mlp(20, 48),
    "residual MLP, 10 tanh blocks": lambda: residual_mlp(10, 48, nn.Tanh),
    "LayerNorm MLP, 8 GELU blocks": lambda: normalized_mlp(8),
    "CNN, 4 ReLU layers": lambda: plain_cnn(4, 8),
    "CNN, 10 ReLU layers": lambda: plain_cnn(10, 8),
    "CNN, 8 tanh layers": lambda: plain_cnn(8, 8, nn.Tanh),
    "CNN, 6 ReLU layers, pooled": lambda: pooled_cnn(6),
    "residual CNN, 8 ReLU blocks": lambda: residual_cnn(8, 8),
    "residual CNN, 5 GELU blocks": lambda: residual_cnn(5, 8, nn.GELU),
    "BatchNorm CNN, 6 ReLU layers": lambda: normalized_cnn(6, 8),
    "transformer, 3 blocks, LayerNorm": lambda: Transformer(3),
    "transformer, 4 blocks, no normalization": lambda: Transformer(4, normalize=False),
    "recurrent, tanh": lambda: Recurrent(nn.RNN),
    "recurrent, LSTM": lambda: Recurrent(nn.LSTM),
}
