"""ResNets for FixUp (Zhang, Dauphin and Ma, 2019): for CIFAR, and ResNet-50 for ImageNet.

They have no normalization. A learnable scalar bias is added before every convolution, every
activation and the classifier, and the last layer of every residual branch is followed by a
learnable scalar multiplier. :func:`neuroinit.fixup_` initializes them; it finds the residual
branches and the classifier by the attributes ``fixup_branch`` and ``fixup_classifier``.

With equal parameters, the outputs are those of the authors' released networks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.experiments.models.resnet import WIDTHS, shapes

SCALAR_RATE = 0.1  # learning rate of biases and multipliers, relative to that of the weights


def scalar_names(model: nn.Module) -> set[str]:
    """Names of the parameters that a FixUp network trains with a tenth of the learning rate.

    As in the authors' training script, these are all parameters with ``bias`` or ``scale`` in the
    name, the classifier's bias included. Empty if the model was not made for FixUp.
    """
    if not hasattr(model, "fixup_classifier"):
        return set()
    return {name for name, _ in model.named_parameters() if "bias" in name or "scale" in name}


def scalar(value: float) -> nn.Parameter:
    """A learnable number."""
    return nn.Parameter(torch.full((1,), value))


class FixupBlock(nn.Module):
    """The CIFAR network's block of two 3x3 convolutions.

    ``relu(shortcut + scale * conv2(relu(conv1(x + bias1a) + bias1b) + bias2a) + bias2b)``, where
    the shortcut is ``x``. A block that halves the image takes every second pixel of ``x + bias1a``
    instead, followed by as many channels of zeros.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.added, self.stride = outputs - inputs, stride
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
        """Add the residual branch to the shortcut."""
        shifted = x + self.bias1a
        branch = F.relu(self.conv1(shifted) + self.bias1b)
        branch = self.conv2(branch + self.bias2a) * self.scale + self.bias2b
        if self.stride == 1:
            return F.relu(x + branch)
        smaller = shifted[:, :, :: self.stride, :: self.stride]
        return F.relu(F.pad(smaller, (0, 0, 0, 0, 0, self.added)) + branch)


class FixupResNet(nn.Module):
    """The ResNet for CIFAR: ``depth = 6n + 2`` layers, built from :class:`FixupBlock`."""

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


class FixupBottleneck(nn.Module):
    """ResNet-50's block of a 1x1, a 3x3 and a 1x1 convolution.

    The shortcut is ``x``, or a 1x1 convolution of ``x + bias1a`` where the shape changes.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bias1a, self.bias1b = scalar(0.0), scalar(0.0)
        self.bias2a, self.bias2b = scalar(0.0), scalar(0.0)
        self.bias3a, self.bias3b = scalar(0.0), scalar(0.0)
        self.scale = scalar(1.0)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    @property
    def fixup_branch(self) -> list[nn.Module]:
        """Layers of the residual branch, in order."""
        return [self.conv1, self.conv2, self.conv3]

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual branch to the shortcut."""
        shifted = x + self.bias1a
        branch = F.relu(self.conv1(shifted) + self.bias1b)
        branch = F.relu(self.conv2(branch + self.bias2a) + self.bias2b)
        branch = self.conv3(branch + self.bias3a) * self.scale + self.bias3b
        return F.relu((x if self.shortcut is None else self.shortcut(shifted)) + branch)


class FixupResNet50(nn.Module):
    """ResNet-50 for ImageNet: stages of 3, 4, 6 and 3 blocks of :class:`FixupBottleneck`."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bias1, self.bias2 = scalar(0.0), scalar(0.0)
        blocks, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            width = 64 * 2**stage
            for block in range(count):
                stride = 2 if stage and block == 0 else 1
                blocks.append(FixupBottleneck(inputs, width, stride))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inputs, classes)

    @property
    def fixup_classifier(self) -> nn.Module:
        """The last layer."""
        return self.classifier

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        stem = F.max_pool2d(F.relu(self.conv(x) + self.bias1), 3, 2, padding=1)
        logits: Tensor = self.classifier(self.blocks(stem).mean((2, 3)) + self.bias2)
        return logits
