"""ResNets for CIFAR (He et al., 2016, Section 4.2): three stages, two convolutions a block."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (16, 32, 64)


def shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    """The shortcut without parameters (option A): every ``stride``-th pixel, new channels zero."""
    more = channels - x.shape[1]
    return F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, more // 2, more - more // 2))


class Block(nn.Module):
    """``relu(shortcut(x) + bn(conv(relu(bn(conv(x))))))``."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.outputs, self.stride = outputs, stride
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        branch = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(shortcut(x, self.outputs, self.stride) + branch)


class ResNet(nn.Module):
    """``depth = 6n + 2`` layers: a stem, three stages of ``n`` blocks, a classifier."""

    def __init__(self, depth: int, classes: int, widths: tuple[int, int, int] = WIDTHS) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        self.blocks = nn.Sequential(*[Block(*shape) for shape in shapes(depth, widths)])
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        features = self.blocks(F.relu(self.norm(self.conv(x))))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


def shapes(depth: int, widths: tuple[int, int, int] = WIDTHS) -> list[tuple[int, int, int]]:
    """Input channels, output channels and stride of every block."""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"A ResNet for CIFAR has 6n + 2 layers (8, 14, 20, ...). Found {depth}.")
    outputs = [width for width in widths for _ in range((depth - 2) // 6)]
    inputs = [widths[0], *outputs[:-1]]
    return [(a, b, 1 if a == b else 2) for a, b in zip(inputs, outputs, strict=True)]
