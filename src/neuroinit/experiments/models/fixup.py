"""ResNets for CIFAR as FixUp needs them (Zhang, Dauphin and Ma, 2019): no normalization.

A scalar bias stands before every convolution, activation and the classifier, and one scalar
multiplier ends every residual branch. Their starting values, and the scaling of the weights, are
``neuroinit.fixup_``'s job, which finds the branches by the attributes ``fixup_branch`` and
``fixup_classifier``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.experiments.models.resnet import WIDTHS, shapes, shortcut


def scalar(value: float) -> nn.Parameter:
    """A learnable number."""
    return nn.Parameter(torch.full((1,), value))


class FixupBlock(nn.Module):
    """``relu(shortcut(x) + scale * conv(relu(conv(x))))`` with a scalar bias at every place."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.outputs, self.stride = outputs, stride
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bias1a, self.bias1b = scalar(0.0), scalar(0.0)
        self.bias2a, self.bias2b = scalar(0.0), scalar(0.0)
        self.scale = scalar(1.0)

    @property
    def fixup_branch(self) -> list[nn.Module]:
        """Layers of the residual branch, in order."""
        return [self.conv1, self.conv2]

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        branch = F.relu(self.conv1(x + self.bias1a) + self.bias1b)
        branch = self.conv2(branch + self.bias2a) * self.scale + self.bias2b
        return F.relu(shortcut(x, self.outputs, self.stride) + branch)


class FixupResNet(nn.Module):
    """:class:`~neuroinit.experiments.models.resnet.ResNet`, built from FixUp's blocks."""

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bias1, self.bias2 = scalar(0.0), scalar(0.0)
        self.blocks = nn.Sequential(*[FixupBlock(*shape) for shape in shapes(depth)])
        self.classifier = nn.Linear(WIDTHS[-1], classes)

    @property
    def fixup_classifier(self) -> nn.Module:
        """The last layer."""
        return self.classifier

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        features = self.blocks(F.relu(self.conv(x) + self.bias1))
        logits: Tensor = self.classifier(features.mean((2, 3)) + self.bias2)
        return logits
