"""Augment training batches: crop, flip, Cutout, RandAugment and mixup, on tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.experiments import vision
from neuroinit.experiments.data.images import ImageData, seeded
from neuroinit.experiments.data.split import Batch


@dataclass(frozen=True)
class Augmentation:
    """How training images are augmented; each image is treated independently (Appendix B).

    Args:
        crop: Pad each side with this many black pixels and crop a random window of the original
            size. By default 4, and 0 for `digits`.
        flip: Flip half of the images left to right. By default true, and false for `digits`.
        cutout: Edge of a random square of each image that is set to the mean; 0 for none.
        randaugment: Apply torchvision's RandAugment.
        mixup: Parameter alpha of mixup's Beta distribution; 0 for none.
    """

    crop: int | None = None
    flip: bool | None = None
    cutout: int = 0
    randaugment: bool = False
    mixup: float = 0.0

    def with_defaults(self, data: str) -> Augmentation:
        """Fill in ``crop`` and ``flip`` for this data.

        Digits of 8x8 pixels become unreadable when they are moved by 4 pixels or flipped.

        Example:
            >>> Augmentation().with_defaults("cifar10").crop
            4
            >>> Augmentation(crop=1).with_defaults("digits").crop
            1
        """
        usual = data != "digits"
        return replace(
            self,
            crop=4 * usual if self.crop is None else self.crop,
            flip=usual if self.flip is None else self.flip,
        )

    def __call__(self, images: Tensor, targets: Tensor, data: ImageData, seed: int) -> Batch:
        """Augment and normalize a batch of bytes.

        Returns:
            Images as floats, and targets; with mixup, class probabilities ``(B, classes)``.
        """
        with seeded(seed):
            if self.randaugment:
                augment = vision.transforms().RandAugment()
                images = torch.stack([augment(image) for image in images])
            inputs = data.normalized(_cropped(images, self.crop or 0, bool(self.flip)))
            if self.cutout:
                inputs = inputs * _cutout_mask(inputs, self.cutout)
            if self.mixup:
                mixup = vision.transforms().MixUp(alpha=self.mixup, num_classes=data.classes)
                inputs, targets = mixup(inputs, targets)
            return inputs, targets


def _cropped(images: Tensor, crop: int, flip: bool) -> Tensor:
    """Shift each image by up to ``crop`` pixels in each direction, and flip half of them."""
    count, _, height, width = images.shape
    top, left = torch.randint(2 * crop + 1, (2, count, 1))
    rows, columns = torch.arange(height), torch.arange(width).expand(count, width)
    if flip:
        columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns)
    padded = F.pad(images, (crop,) * 4)
    sample, channel = torch.arange(count).view(-1, 1, 1, 1), torch.arange(3).view(1, -1, 1, 1)
    return padded[sample, channel, (top + rows)[:, None, :, None], (left + columns)[:, None, None]]


def _cutout_mask(images: Tensor, edge: int) -> Tensor:
    """0 in a random square of each image, 1 elsewhere; ``(B, 1, H, W)``.

    The center of the square is anywhere in the image, so a part of it may lie outside.
    """
    count, _, height, width = images.shape
    inside = []
    for length in (height, width):
        first = torch.randint(length, (count, 1)) - edge // 2
        place = torch.arange(length)
        inside.append((place >= first) & (place < first + edge))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return (~square).float()
