"""Images in memory or in files, and batches of them.

A batch depends only on the seed, the epoch and its index in the epoch. A run that was killed
therefore continues with the batch that comes next.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from neuroinit.common.checks import check_count
from neuroinit.experiments import vision
from neuroinit.experiments.data.split import Batch

WORKERS = min(8, os.cpu_count() or 1)
MOMENTS = 2**28  # number of pixel values from which mean and standard deviation are estimated


@dataclass(frozen=True)
class MemoryImages:
    """Images of one size in memory.

    Args:
        images: Bytes of shape ``(N, 3, H, W)``.
        targets: Classes, ``(N,)``.
        size: Height and width to which a batch is resized; ``None`` keeps the images as they are.
    """

    images: Tensor
    targets: Tensor
    size: int | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, indices: list[Tensor]) -> Iterator[Batch]:
        """Yield the batch of each index tensor, as bytes."""
        for index in indices:
            yield _resized(self.images[index], self.size), self.targets[index]

    def subset(self, count: int | None, size: int | None) -> MemoryImages:
        """Choose ``count`` images (see :func:`fixed_subset`), resized to ``size``."""
        chosen = fixed_subset(len(self), count)
        return MemoryImages(self.images[chosen], self.targets[chosen], size)


@dataclass(frozen=True)
class ImageFiles(Dataset[tuple[Tensor, int]]):
    """Images in files, decoded by worker processes.

    Args:
        samples: Path and class of every image.
        size: Height and width of the decoded images.
        crop_seed: Seed of the random crops for training; ``None`` takes the center of each image.
    """

    samples: list[tuple[str, int]]
    size: int
    crop_seed: int | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, target = self.samples[index]
        if self.crop_seed is None:
            return decode(path, self.size, crop=False), target
        with seeded(self.crop_seed + index):
            return decode(path, self.size, crop=True), target

    def batches(self, indices: list[Tensor]) -> Iterator[Batch]:
        """Yield the batch of each index tensor, as bytes."""
        loader = DataLoader(
            self,
            batch_sampler=[index.tolist() for index in indices],
            num_workers=WORKERS,
            generator=torch.Generator(),  # the default would draw from the global generator
        )
        yield from loader


@dataclass(frozen=True)
class ImageData:
    """Training and test images.

    Args:
        train: Images for training.
        test: Images for testing.
        classes: Number of classes.
        mean: Mean of each channel, ``(3, 1, 1)``, for pixel values from 0 to 1.
        std: Standard deviation of each channel, ``(3, 1, 1)``.
    """

    train: MemoryImages | ImageFiles
    test: MemoryImages | ImageFiles
    classes: int
    mean: Tensor
    std: Tensor

    @classmethod
    def in_memory(cls, train: MemoryImages, test: MemoryImages, classes: int) -> ImageData:
        """Take mean and standard deviation from the training images."""
        values = 3 * train.size**2 if train.size else train.images[0].numel()
        some, _ = next(train.batches([fixed_subset(len(train), max(1, MOMENTS // values))]))
        pixels = some.float().div_(255)
        mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
        return cls(train, test, classes, mean.view(3, 1, 1), std.view(3, 1, 1))

    def normalized(self, images: Tensor) -> Tensor:
        """Turn bytes into floats with mean 0 and variance 1 in each channel."""
        return (images.float() / 255 - self.mean) / self.std

    def steps_per_epoch(self, batch_size: int) -> int:
        """Number of full batches in an epoch.

        Raises:
            ValueError: There is not even one.
        """
        check_count("batch_size", batch_size, 1)
        if batch_size > len(self.train):
            raise ValueError(
                f"`batch_size = {batch_size}` is more than the {len(self.train)} training images."
            )
        return len(self.train) // batch_size

    def epoch(self, epoch: int, batch_size: int, seed: int, first: int = 0) -> Iterator[Batch]:
        """Yield the full batches of an epoch as bytes, beginning with batch ``first``.

        Images in files are randomly cropped.
        """
        images = self.train
        if isinstance(images, ImageFiles):
            images = replace(images, crop_seed=combined_seed(seed, epoch))
        return images.batches(self._shuffled(epoch, batch_size, seed)[first:])

    def _shuffled(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(combined_seed(seed, epoch))
        order = torch.randperm(len(self.train), generator=generator)
        return list(torch.split(order, batch_size))[: self.steps_per_epoch(batch_size)]

    def unaugmented(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield normalized training batches without augmentation; never ends."""
        for epoch in itertools.count():
            for images, targets in self.train.batches(self._shuffled(epoch, batch_size, seed)):
                yield self.normalized(images), targets

    def tests(self, batch_size: int) -> Iterator[Batch]:
        """Yield all test images in normalized batches; the last one may be smaller."""
        indices = list(torch.split(torch.arange(len(self.test)), batch_size))
        for images, targets in self.test.batches(indices):
            yield self.normalized(images), targets


def combined_seed(*numbers: int) -> int:
    """Make one seed from several numbers."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 12_345) % 2**48
    return seed


def fixed_subset(total: int, count: int | None) -> Tensor:
    """Choose ``count`` of ``total`` indices, the same in every run; all for ``None``."""
    if count is None or count >= total:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:count]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator, and restore its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _resized(images: Tensor, size: int | None) -> Tensor:
    if size in (None, images.shape[-1]):
        return images
    resized: Tensor = vision.transforms().functional.resize(images, [size, size], antialias=True)
    return resized


def decode(path: str, size: int, crop: bool) -> Tensor:
    """Read an image file as bytes ``(3, size, size)``.

    With ``crop``, a random part of it, as for training on ImageNet. Without, its center: 7/8 of the
    shorter edge, as in the usual 224 of 256 pixels.
    """
    v2 = vision.transforms()
    from PIL import Image

    with Image.open(path) as file:
        image: Tensor = v2.functional.pil_to_tensor(file.convert("RGB"))
    if image.shape[-2:] == (size, size):
        return image
    if crop:
        steps = [v2.RandomResizedCrop(size, antialias=True)]
    else:
        steps = [v2.Resize(size * 8 // 7, antialias=True), v2.CenterCrop(size)]
    cut: Tensor = v2.Compose(steps)(image)
    return cut
