"""Wide ResNets (Zagoruyko and Komodakis, 2016), pre-activation."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class WideBlock(nn.Module):
    """``shortcut(x) + conv(relu(bn(conv(relu(bn(x))))))``."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch; a shortcut with weights shares the first activation."""
        active = F.relu(self.norm1(x))
        identity = x if self.shortcut is None else self.shortcut(active)
        added: Tensor = identity + self.conv2(F.relu(self.norm2(self.conv1(active))))
        return added


class WideResNet(nn.Module):
    """``depth = 6n + 4`` layers, ``widening`` times as wide as a ResNet for CIFAR."""

    def __init__(self, depth: int, widening: int, classes: int) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 or widening < 1:
            raise ValueError(
                "A wide ResNet `wrn-d-k` has d = 6n + 4 layers (10, 16, 22, 28, ...) and a "
                f"widening of at least 1. Found {depth} and {widening}."
            )
        stages = [(16 * widening * 2**stage, 1 if stage == 0 else 2) for stage in range(3)]
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        blocks, inputs = [], 16
        for outputs, stride in stages:
            for index in range((depth - 4) // 6):
                blocks.append(WideBlock(inputs, outputs, stride if index == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inputs)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        features = F.relu(self.norm(self.blocks(self.conv(x))))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits
