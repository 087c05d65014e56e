"""DenseNets for CIFAR (Huang et al., 2017): plain, and BC (bottleneck, compression 0.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROWTH = 12


class Layer(nn.Module):
    """BatchNorm, ReLU, 3x3 convolution (after a 1x1 one if BC), concatenated to the input."""

    def __init__(self, inputs: int, growth: int, bottleneck: bool) -> None:
        super().__init__()
        middle = 4 * growth if bottleneck else inputs
        self.norm = nn.BatchNorm2d(middle)
        self.conv = nn.Conv2d(middle, growth, 3, padding=1, bias=False)
        self.reduce = Pointwise(inputs, middle) if bottleneck else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add ``growth`` channels."""
        return torch.cat([x, self.conv(F.relu(self.norm(self.reduce(x))))], 1)


class Pointwise(nn.Module):
    """BatchNorm, ReLU, 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the channels."""
        mixed: Tensor = self.conv(F.relu(self.norm(x)))
        return mixed


class DenseNet(nn.Module):
    """A stem, three dense blocks with transitions between them, a classifier."""

    def __init__(self, depth: int, classes: int, bc: bool, growth: int = GROWTH) -> None:
        super().__init__()
        per_layer = 2 if bc else 1
        if depth < 7 or (depth - 4) % (3 * per_layer):
            form = "6n + 4" if bc else "3n + 4"
            raise ValueError(f"This DenseNet has {form} layers. Found {depth}.")
        channels = 2 * growth if bc else 16
        body: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        for stage in range(3):
            if stage:
                outputs = channels // 2 if bc else channels
                body += [Pointwise(channels, outputs), nn.AvgPool2d(2)]
                channels = outputs
            for _ in range((depth - 4) // (3 * per_layer)):
                body.append(Layer(channels, growth, bottleneck=bc))
                channels += growth
        self.body = nn.Sequential(*body, nn.BatchNorm2d(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        logits: Tensor = self.classifier(self.body(x).mean((2, 3)))
        return logits
