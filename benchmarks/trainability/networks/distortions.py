"""Eight networks that tell how a 12x12 color image was distorted.

Of the kinds that people use for images. Three of them normalize.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.trainability.networks.other import Mean
from neuroinit.experiments.models.small_networks import Activation, Residual

SIDE, COLORS, DISTORTIONS = 12, 3, 6
PATCH = 3  # the side of a patch
PATCHES = (SIDE // PATCH) ** 2


class Block(nn.Module):
    """A block of a ResNet: two convolutions and a skip path, ReLU after their sum."""

    def __init__(self, before: int, after: int, stride: int, normalize: bool) -> None:
        super().__init__()

        def convolution(channels: int, size: int, step: int) -> nn.Module:
            layer = nn.Conv2d(channels, after, size, step, size // 2, bias=not normalize)
            return nn.Sequential(layer, nn.BatchNorm2d(after)) if normalize else layer

        self.branch = nn.Sequential(
            convolution(before, 3, stride), nn.ReLU(), convolution(after, 3, 1)
        )
        same = before == after and stride == 1
        self.skip = nn.Identity() if same else convolution(before, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """As in the first ResNets."""
        return F.relu(torch.add(self.skip(x), self.branch(x)))


class Level(nn.Module):
    """A level of a U-Net: what is done at half the size is joined to what came in."""

    def __init__(self, width: int, inner: nn.Module, below: int) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(width, below, 3, 2, padding=1), nn.LeakyReLU(0.1))
        self.inner = inner
        self.up = nn.ConvTranspose2d(below, width, 2, 2)
        self.join = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.LeakyReLU(0.1))

    def forward(self, x: Tensor) -> Tensor:
        """As large as before."""
        lifted = F.leaky_relu(self.up(self.inner(self.down(x))), 0.1)
        return torch.as_tensor(self.join(torch.cat([x, lifted], 1)))


class Inception(nn.Module):
    """Convolutions of three sizes and a maximum, side by side."""

    def __init__(self, width: int, part: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [
                nn.Conv2d(width, part, 1),
                nn.Sequential(
                    nn.Conv2d(width, part, 1), nn.ReLU(), nn.Conv2d(part, part, 3, padding=1)
                ),
                nn.Sequential(
                    nn.Conv2d(width, part, 1), nn.ReLU(), nn.Conv2d(part, part, 5, padding=2)
                ),
                nn.Sequential(nn.MaxPool2d(3, 1, padding=1), nn.Conv2d(width, part, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """All of them behind one ReLU."""
        return F.relu(torch.cat([part(x) for part in self.parts], 1))


class Cut(nn.Module):
    """Patches of an image as tokens, behind one that is learned if so wished."""

    def __init__(self, width: int, first: bool) -> None:
        super().__init__()
        self.cut = nn.Conv2d(COLORS, width, PATCH, PATCH)
        self.place = nn.Parameter(0.02 * torch.randn(PATCHES, width))
        self.first = nn.Parameter(0.02 * torch.randn(1, width)) if first else None

    def forward(self, x: Tensor) -> Tensor:
        """Sixteen tokens or seventeen."""
        tokens = torch.add(self.cut(x).flatten(2).mT, self.place)
        if self.first is None:
            return tokens
        return torch.cat([self.first.expand(len(x), 1, -1), tokens], 1)


class SpatialGate(nn.Module):
    """Half of the features, times what all tokens say of them."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(tokens, tokens)

    def forward(self, x: Tensor) -> Tensor:
        """Half as many features."""
        value, gate = x.chunk(2, -1)
        return torch.mul(value, 1 + self.mix(self.norm(gate).mT).mT)


class Attention(nn.Module):
    """Self-attention with one linear layer for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at every token."""
        parts = self.into(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return torch.as_tensor(self.out(found.transpose(1, 2).flatten(2)))


class SwiGLU(nn.Module):
    """A perceptron whose hidden layer has a gate."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.value, self.gate = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.out = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """As in language models."""
        return torch.as_tensor(self.out(F.silu(self.gate(x)) * self.value(x)))


class First(nn.Module):
    """The features of the first token."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector an image."""
        return x[:, 0]


def classifier(width: int) -> tuple[nn.Module, ...]:
    """The mean over the image, and a linear layer."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, DISTORTIONS)


def perceptron(width: int, hidden: int, activation: Activation) -> tuple[nn.Module, ...]:
    """All features of 3x3 pixels, and two linear layers."""
    head = (nn.Linear(9 * width, hidden), activation(), nn.Linear(hidden, DISTORTIONS))
    return nn.Flatten(), *head


def resnet(each: int, width: int, normalize: bool) -> nn.Module:
    """A stem and two stages of blocks; the second has more channels and fewer pixels."""
    body = [Block(width, width, 1, normalize) for _ in range(each)]
    body.append(Block(width, 2 * width, 2, normalize))
    body += [Block(2 * width, 2 * width, 1, normalize) for _ in range(each - 1)]
    stem = (nn.Conv2d(COLORS, width, 3, 2, padding=1), nn.ReLU())
    return nn.Sequential(*stem, *body, *classifier(2 * width))


def unet(widths: tuple[int, ...]) -> nn.Module:
    """A U-Net as a classifier, without normalization."""
    deepest = widths[-1]
    inner: nn.Module = nn.Sequential(nn.Conv2d(deepest, deepest, 3, padding=1), nn.LeakyReLU(0.1))
    for width, below in zip(widths[-2::-1], widths[:0:-1], strict=True):
        inner = Level(width, inner, below)
    stem = (nn.Conv2d(COLORS, widths[0], 3, padding=1), nn.LeakyReLU(0.1))
    return nn.Sequential(*stem, inner, *classifier(widths[0]))


def inception(modules: int, part: int) -> nn.Module:
    """Inception modules without normalization, a maximum of 2x2 pixels after the first."""
    layers: list[nn.Module] = [nn.Conv2d(COLORS, 4 * part, 3, 2, padding=1), nn.ReLU()]
    for k in range(modules):
        layers += [Inception(4 * part, part), *([nn.MaxPool2d(2)] if k == 0 else [])]
    return nn.Sequential(*layers, *classifier(4 * part))


def separable(depth: int, width: int) -> nn.Module:
    """Depthwise and pointwise convolutions in turn, as in the first MobileNet, not normalized."""
    layers: list[nn.Module] = [nn.Conv2d(COLORS, width, 3, 2, padding=1), nn.ReLU6()]
    for k in range(depth):
        stride = 2 if k == depth // 2 else 1
        layers += [nn.Conv2d(width, width, 3, stride, 1, groups=width), nn.ReLU6()]
        layers += [nn.Conv2d(width, width, 1), nn.ReLU6()]
    return nn.Sequential(*layers, *perceptron(width, 32, nn.ReLU6))


def cnn(depth: int, width: int, activation: Activation) -> nn.Module:
    """Plain convolutions, two of them with stride 2, and a perceptron over all features."""
    layers: list[nn.Module] = []
    for k in range(depth):
        stride = 2 if k in (1, depth // 2) else 1
        convolution = nn.Conv2d(width if k else COLORS, width, 3, stride, padding=1)
        layers += [convolution, activation()]
    return nn.Sequential(*layers, *perceptron(width, 48, activation))


def gmlp(blocks: int, width: int) -> nn.Module:
    """Residual perceptrons over patches; in the middle of each a gate that sees all patches."""
    body = [
        Residual(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            SpatialGate(2 * width, PATCHES),
            nn.Linear(2 * width, width),
        )
        for _ in range(blocks)
    ]
    head = (nn.LayerNorm(width), Mean(), nn.Linear(width, DISTORTIONS))
    return nn.Sequential(Cut(width, first=False), *body, *head)


def gated_transformer(blocks: int, width: int) -> nn.Module:
    """RMSNorm before attention and before SwiGLU, no biases; the first token is classified."""
    body: list[nn.Module] = []
    for _ in range(blocks):
        body.append(Residual(nn.RMSNorm(width), Attention(width, 4)))
        body.append(Residual(nn.RMSNorm(width), SwiGLU(width, 2 * width)))
    head = (nn.RMSNorm(width), First(), nn.Linear(width, DISTORTIONS))
    return nn.Sequential(Cut(width, first=True), *body, *head)


DISTORTION_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ResNet, 4 blocks, BatchNorm": lambda: resnet(2, 10, normalize=True),
    "ResNet, 6 blocks, no normalization": lambda: resnet(3, 12, normalize=False),
    "U-Net, 3 levels": lambda: unet((8, 16, 24)),
    "Inception, 3 modules": lambda: inception(3, 6),
    "separable CNN, 4 ReLU6 layers": lambda: separable(4, 24),
    "CNN, 8 SELU layers, perceptron": lambda: cnn(8, 14, nn.SELU),
    "gMLP, 5 blocks, LayerNorm": lambda: gmlp(5, 24),
    "transformer, 4 blocks, RMSNorm, SwiGLU": lambda: gated_transformer(4, 24),
}
