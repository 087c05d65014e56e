"""Seven networks that find the quarter of a 16x16 color image that is a negative."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.trainability.networks.other import Patches
from neuroinit.experiments.models.small_networks import Activation, Residual

SIDE, COLORS, QUARTERS = 16, 3, 4


class Maxout(nn.Module):
    """A convolution of twice the channels; the larger of two is kept."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(before, 2 * after, 3, stride, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The maximum of both halves."""
        return torch.maximum(*self.convolve(x).chunk(2, 1))


class Scaled(nn.Module):
    """LayerScale: a small learned factor a channel."""

    def __init__(self, channels: int, start: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((channels, 1, 1), start))

    def forward(self, x: Tensor) -> Tensor:
        """Times the factors."""
        return torch.mul(x, self.factor)


def cnn(depth: int, width: int, activation: Activation) -> nn.Module:
    """Plain 3x3 convolutions, two of them with stride 2, and all features classified."""
    layers: list[nn.Module] = [nn.Conv2d(COLORS, width, 3, 2, padding=1), activation()]
    for k in range(1, depth):
        stride = 2 if k == depth // 2 else 1
        layers += [nn.Conv2d(width, width, 3, stride, padding=1), activation()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * width, QUARTERS))


def maxout(depth: int, width: int) -> nn.Module:
    """Plain convolutions whose channels compete in pairs."""
    body = [
        Maxout(width if k else COLORS, width, 2 if k in (0, depth // 2) else 1)
        for k in range(depth)
    ]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(16 * width, QUARTERS))


def perceptron(depth: int, width: int, activation: Activation) -> nn.Module:
    """Linear layers of one width."""
    layers: list[nn.Module] = [nn.Flatten()]
    for k in range(depth):
        layers += [nn.Linear(width if k else COLORS * SIDE * SIDE, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, QUARTERS))


def bottlenecks(blocks: int, width: int, activation: Activation) -> nn.Module:
    """Residual blocks of 1x1, 3x3 and 1x1 convolutions, without normalization."""
    inner = width // 2
    body = [
        Residual(
            nn.Conv2d(width, inner, 1),
            activation(),
            nn.Conv2d(inner, inner, 3, padding=1),
            activation(),
            nn.Conv2d(inner, width, 1),
        )
        for _ in range(blocks)
    ]
    head = (nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, QUARTERS))
    return nn.Sequential(nn.Conv2d(COLORS, width, 4, 4), *body, *head)


def vgg(widths: tuple[int, ...]) -> nn.Module:
    """Pairs of convolutions with BatchNorm and ReLU, then the maximum of 2x2 pixels."""
    layers: list[nn.Module] = []
    channels = COLORS
    for width in widths:
        for _ in range(2):
            convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    side = SIDE // 2 ** len(widths)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(side * side * channels, QUARTERS))


def convnext(blocks: int, width: int) -> nn.Module:
    """Depthwise convolution, normalization, a perceptron over channels, and LayerScale."""
    body = [
        Residual(
            nn.Conv2d(width, width, 3, padding=1, groups=width),
            nn.GroupNorm(1, width),
            nn.Conv2d(width, 4 * width, 1),
            nn.GELU(),
            nn.Conv2d(4 * width, width, 1),
            Scaled(width, 0.1),
        )
        for _ in range(blocks)
    ]
    head = (nn.Flatten(), nn.Linear(16 * width, QUARTERS))
    return nn.Sequential(nn.Conv2d(COLORS, width, 4, 4), nn.GroupNorm(1, width), *body, *head)


def vit(blocks: int, width: int) -> nn.Module:
    """torch's own blocks with LayerNorm before them and GELU, without dropout."""
    block = nn.TransformerEncoderLayer(
        width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
    )
    body = nn.TransformerEncoder(block, blocks, nn.LayerNorm(width), enable_nested_tensor=False)
    return nn.Sequential(Patches(width), body, nn.Flatten(), nn.Linear(SIDE * width, QUARTERS))


QUADRANT_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "CNN, 8 Mish layers": lambda: cnn(8, 14, nn.Mish),
    "maxout CNN, 7 layers": lambda: maxout(7, 10),
    "MLP, 13 ELU layers": lambda: perceptron(13, 72, nn.ELU),
    "bottlenecks, 7 SiLU blocks": lambda: bottlenecks(7, 24, nn.SiLU),
    "VGG, 4 layers, BatchNorm": lambda: vgg((8, 16)),
    "ConvNeXt, 3 blocks, LayerScale": lambda: convnext(3, 20),
    "ViT, 3 blocks, Pre-LN": lambda: vit(3, 24),
}
