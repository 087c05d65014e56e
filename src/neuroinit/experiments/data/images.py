"""Images in memory or in files, and batches of them.

A batch is a function of the seed, the epoch and its place in it, so that a run that was killed goes
on with the batch it would have had.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.checks import check_count
from neuroinit.experiments import vision

Batch = tuple[Tensor, Tensor]
WORKERS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Images:
    """Images of one size, as bytes ``(N, 3, H, W)``, their classes, and the size they get."""

    images: Tensor
    targets: Tensor
    size: int | None = None  # of the batches, each when it is asked for; ``None`` for as they are

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, indices: list[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches of these indices."""
        for index in indices:
            yield _resized(self.images[index], self.size), self.targets[index]

    def subset(self, count: int | None, size: int | None = None) -> Images:
        """``count`` of the images, always the same."""
        chosen = pick(len(self), count)
        return Images(self.images[chosen], self.targets[chosen], size)


@dataclass(frozen=True)
class Files:
    """Images in files, decoded by workers when they are needed."""

    samples: list[tuple[str, int]]
    size: int

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: tuple[int, int | None]) -> tuple[Tensor, int]:
        index, seed = key
        path, target = self.samples[index]
        if seed is None:
            return decode(path, self.size, crop=False), target
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + index)
            return decode(path, self.size, crop=True), target

    def batches(self, indices: list[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches of these indices: with a seed, a random part of every image, as for training
        on ImageNet, and without one its centre."""
        keys = [[(int(i), seed) for i in index] for index in indices]
        loader: Any = torch.utils.data.DataLoader(
            self,  # type: ignore[arg-type]
            batch_sampler=keys,
            num_workers=WORKERS,
            generator=torch.Generator(),  # or it draws from the model's numbers
        )
        yield from loader


@dataclass(frozen=True)
class Data:
    """A training and a test set, and what normalizes them."""

    train: Images | Files
    test: Images | Files
    classes: int
    mean: Tensor
    std: Tensor

    def normalized(self, images: Tensor) -> Tensor:
        """Bytes to numbers of mean 0 and variance 1."""
        return (images.float() / 255 - self.mean) / self.std

    def steps(self, batch_size: int) -> int:
        """Full batches of an epoch."""
        check_count("batch_size", batch_size, 1)
        if batch_size > len(self.train):
            raise ValueError(
                f"`batch_size = {batch_size}` is more than the {len(self.train)} training images."
            )
        return len(self.train) // batch_size

    def epoch(self, epoch: int, batch_size: int, seed: int, first: int = 0) -> Iterator[Batch]:
        """Full batches of bytes of one shuffled pass, from the ``first`` on."""
        indices = self._shuffled(epoch, batch_size, seed)[first:]
        return self.train.batches(indices, mix(seed, epoch))

    def _shuffled(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(mix(seed, epoch))
        order = torch.randperm(len(self.train), generator=generator)
        return list(torch.split(order, batch_size))[: self.steps(batch_size)]

    def samples(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Normalized training batches without augmentation and without end."""
        for epoch in itertools.count():
            for images, targets in self.train.batches(self._shuffled(epoch, batch_size, seed)):
                yield self.normalized(images), targets

    def tests(self, batch_size: int) -> Iterator[Batch]:
        """All test images, normalized."""
        indices = list(torch.split(torch.arange(len(self.test)), batch_size))
        for images, targets in self.test.batches(indices):
            yield self.normalized(images), targets


def mix(*numbers: int) -> int:
    """One seed from several numbers."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 12_345) % 2**48
    return seed


def pick(total: int, count: int | None) -> Tensor:
    """``count`` of ``total`` indices, always the same ones."""
    if count is None or count >= total:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:count]


def _resized(images: Tensor, size: int | None) -> Tensor:
    if size in (None, images.shape[-1]):
        return images
    resize = vision.transforms().functional.resize
    return resize(images, [size, size], antialias=True)  # type: ignore[no-any-return]


def decode(path: str, size: int, crop: bool) -> Tensor:
    """An image file as bytes ``(3, size, size)``: its centre, or a random part of it."""
    v2 = vision.transforms()
    from PIL import Image

    with Image.open(path) as file:
        image = v2.functional.pil_to_tensor(file.convert("RGB"))
    if image.shape[-2:] == (size, size):
        return image  # type: ignore[no-any-return]
    if crop:
        steps = [v2.RandomResizedCrop(size, antialias=True)]
    else:  # an eighth is cut off, as is usual at 224 of 256
        steps = [v2.Resize(size * 8 // 7, antialias=True), v2.CenterCrop(size)]
    return v2.Compose(steps)(image)  # type: ignore[no-any-return]
