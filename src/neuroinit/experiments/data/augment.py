"""What happens to a training batch: crops, mirrors, holes and mixtures, on tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.experiments import vision
from neuroinit.experiments.data.images import Batch, Data


@dataclass(frozen=True)
class Augmentation:
    """What happens to a training batch, each image on its own (Appendix B).

    Args:
        crop: Pad by this many black pixels on each side and cut out a random window; by default 4,
            and 0 for `digits`.
        flip: Mirror half of the images; by default all data but `digits`.
        cutout: Edge of a square of each image that is set to the mean.
        randaugment: torchvision's RandAugment.
        mixup: Parameter alpha of mixup's Beta distribution; 0 for none.
    """

    crop: int | None = None
    flip: bool | None = None
    cutout: int = 0
    randaugment: bool = False
    mixup: float = 0.0

    def chosen(self, data: str) -> Augmentation:
        """With the defaults for this data: a digit of 8x8 moved by 4, or mirrored, is no digit.

        Example:
            >>> Augmentation().chosen("cifar10").crop, Augmentation(crop=1).chosen("digits").crop
            (4, 1)
        """
        usual = data != "digits"
        return replace(
            self,
            crop=4 * usual if self.crop is None else self.crop,
            flip=usual if self.flip is None else self.flip,
        )

    def __call__(self, images: Tensor, targets: Tensor, data: Data, seed: int) -> Batch:
        """Augment and normalize a batch of bytes; mixup turns targets into probabilities."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.randaugment:
                augment = vision.transforms().RandAugment()
                images = torch.stack([augment(image) for image in images])
            mixed = data.normalized(_window(images, self.crop or 0, bool(self.flip)))
            if self.cutout:
                mixed = mixed * _holes(mixed, self.cutout)
            if self.mixup:
                mixup = vision.transforms().MixUp(alpha=self.mixup, num_classes=data.classes)
                mixed, targets = mixup(mixed, targets)
            return mixed, targets


def _window(images: Tensor, crop: int, flip: bool) -> Tensor:
    """Each image shifted by up to ``crop`` pixels, and mirrored or not."""
    count, _, height, width = images.shape
    top, left = torch.randint(2 * crop + 1, (2, count, 1))
    rows, columns = torch.arange(height), torch.arange(width).expand(count, width)
    if flip:
        columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns)
    padded = F.pad(images, (crop,) * 4)
    sample, channel = torch.arange(count).view(-1, 1, 1, 1), torch.arange(3).view(1, -1, 1, 1)
    return padded[sample, channel, (top + rows)[:, None, :, None], (left + columns)[:, None, None]]


def _holes(images: Tensor, edge: int) -> Tensor:
    """0 in a random square of each image, which may reach over the border, and 1 elsewhere."""
    count, _, height, width = images.shape
    inside = []
    for length in (height, width):
        first = torch.randint(length, (count, 1)) - edge // 2
        place = torch.arange(length)
        inside.append((place >= first) & (place < first + edge))
    holes = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return (~holes).float()
