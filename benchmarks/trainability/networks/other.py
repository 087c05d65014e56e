"""Twelve networks for 16x16 color images that played no part in the choice of any default."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.experiments.models.small_networks import Residual

SIDE, COLORS, CLASSES = 16, 3, 10
PIXELS = COLORS * SIDE * SIDE


class Patches(nn.Module):
    """4x4 patches of an image as tokens, with a learned place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(COLORS, width, 4, 4)
        self.place = nn.Parameter(0.02 * torch.randn(SIDE, width))

    def forward(self, x: Tensor) -> Tensor:
        """Sixteen tokens."""
        return torch.add(self.cut(x).flatten(2).mT, self.place)


class Mean(nn.Module):
    """The mean over tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector an image."""
        return x.mean(1)


class Transposed(nn.Module):
    """A module that sees the features of tokens as tokens of features."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: Tensor) -> Tensor:
        """There and back."""
        return torch.as_tensor(self.inner(x.mT)).mT


class Grown(nn.Module):
    """What a convolution adds to its input, side by side with it."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """More channels."""
        return torch.cat([x, F.relu(self.convolve(x))], 1)


class Excited(nn.Module):
    """Channels times what the whole image says of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, channels // 4), nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Squeeze and excitation."""
        gates = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))
        return x * gates[:, :, None, None]


class Recurrent(nn.Module):
    """A bidirectional GRU of two layers over the rows of an image."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.cell = nn.GRU(COLORS * SIDE, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, from the mean state."""
        states, _ = self.cell(x.transpose(1, 2).flatten(2))
        return torch.as_tensor(self.head(states.mean(1)))


def vgg() -> nn.Module:
    """Convolutions and maxima, then two linear layers."""
    layers: list[nn.Module] = []
    channels = COLORS
    for width, depth in ((12, 2), (16, 2), (32, 2)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.SiLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = (nn.Flatten(), nn.Linear(32 * 4, 64), nn.SiLU(), nn.Linear(64, CLASSES))
    return nn.Sequential(*layers, *head)


def perceptron(widths: list[int], activation: Callable[[], nn.Module]) -> nn.Module:
    """Linear layers of these widths."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip([PIXELS, *widths], widths, strict=False):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def gated(blocks: int, width: int = 48) -> nn.Module:
    """Residual perceptrons with a gated linear unit."""
    body = [
        Residual(nn.Linear(width, 2 * width), nn.GLU(), nn.Linear(width, width))
        for _ in range(blocks)
    ]
    return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, width), *body, nn.Linear(width, CLASSES))


def dense(layers: int, growth: int = 8) -> nn.Module:
    """A DenseNet without normalization."""
    body = [Grown(16 + growth * k, growth) for k in range(layers)]
    head = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * (16 + growth * layers), CLASSES))
    return nn.Sequential(nn.Conv2d(COLORS, 16, 3, 2, padding=1), *body, *head)


def mixer(blocks: int, width: int = 32) -> nn.Module:
    """An MLP-Mixer without normalization."""
    body: list[nn.Module] = []
    for _ in range(blocks):
        across = (nn.Linear(SIDE, 32), nn.GELU(), nn.Linear(32, SIDE))
        within = (nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        body += [Residual(Transposed(*across)), Residual(*within)]
    return nn.Sequential(Patches(width), *body, Mean(), nn.Linear(width, CLASSES))


def depthwise(blocks: int, width: int = 16) -> nn.Module:
    """Blocks of a depthwise convolution, GroupNorm and a perceptron over channels."""
    body = [
        Residual(
            nn.Conv2d(width, width, 5, padding=2, groups=width),
            nn.GroupNorm(1, width),
            nn.Conv2d(width, 2 * width, 1),
            nn.GELU(),
            nn.Conv2d(2 * width, width, 1),
        )
        for _ in range(blocks)
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))
    return nn.Sequential(nn.Conv2d(COLORS, width, 2, 2), *body, *head)


def inverted(blocks: int, width: int = 8) -> nn.Module:
    """Inverted residuals with squeeze and excitation, without normalization."""
    body = [
        Residual(
            nn.Conv2d(width, 3 * width, 1),
            nn.Hardswish(),
            nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width),
            nn.Hardswish(),
            Excited(3 * width),
            nn.Conv2d(3 * width, width, 1),
        )
        for _ in range(blocks)
    ]
    head = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, CLASSES))
    return nn.Sequential(nn.Conv2d(COLORS, width, 3, 2, padding=1), *body, *head)


def preactivated(blocks: int, width: int = 12, normalize: bool = False) -> nn.Module:
    """Pre-activation residual blocks and the mean over the image, with BatchNorm or without."""

    def half() -> list[nn.Module]:
        norm = [nn.BatchNorm2d(width)] if normalize else []
        return [*norm, nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]

    body = [Residual(*half(), *half()) for _ in range(blocks)]
    head = (nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))
    return nn.Sequential(nn.Conv2d(COLORS, width, 3, 2, padding=1), *body, *head)


def encoder(layers: int, width: int = 32) -> nn.Module:
    """torch's own transformer: LayerNorm after each residual sum, dropout 0.1."""
    block = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True)
    body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
    return nn.Sequential(Patches(width), body, Mean(), nn.Linear(width, CLASSES))


OTHER_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "VGG, 6 SiLU layers and 2": vgg,
    "MLP, 6 LeakyReLU layers": lambda: perceptron([64] * 6, nn.LeakyReLU),
    "MLP, 8 ELU layers, narrowing": lambda: perceptron([128, 96, 64, 64, 48, 32, 24, 16], nn.ELU),
    "gated MLP, 8 residual blocks": lambda: gated(8),
    "dense CNN, 6 layers": lambda: dense(6),
    "Mixer, 5 blocks, no normalization": lambda: mixer(5),
    "depthwise CNN, 3 blocks, GroupNorm": lambda: depthwise(3),
    "inverted residuals, 5 blocks, squeezed": lambda: inverted(5),
    "pre-activation CNN, 10 blocks, pooled": lambda: preactivated(10),
    "pre-activation CNN, 4 blocks, BatchNorm": lambda: preactivated(4, normalize=True),
    "TransformerEncoder, 2 layers, dropout": lambda: encoder(2),
    "GRU, bidirectional, 2 layers": Recurrent,
}
