"""Load a folder of image files with one subfolder per class."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from neuroinit.common.progress import Progress
from neuroinit.experiments import vision
from neuroinit.experiments.data.images import (
    WORKERS,
    ImageData,
    ImageFiles,
    MemoryImages,
    decode,
    fixed_subset,
)

MEMORY = 4 * 2**30  # bytes; larger folders are decoded while training
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Samples = list[tuple[str, int]]  # path and class of every image


def load_folder(
    folder: Path, train_images: int | None, test_images: int | None, image_size: int | None
) -> ImageData:
    """Load a folder; see :func:`~neuroinit.experiments.data.datasets.load` for the arguments.

    The images are decoded once and kept in memory if they take less than 4 GB. Larger folders are
    decoded while training, and normalized with ImageNet's mean and standard deviation.
    """
    train, test, classes = _samples(folder)
    train = [train[i] for i in fixed_subset(len(train), train_images)]
    test = [test[i] for i in fixed_subset(len(test), test_images)]
    size = image_size or _shorter_edge(train[0][0])
    if 3 * size**2 * (len(train) + len(test)) <= MEMORY:
        return ImageData.in_memory(_decoded(train, size), _decoded(test, size), classes)
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    files = ImageFiles(train, size), ImageFiles(test, size)
    return ImageData(*files, classes, mean.view(3, 1, 1), std.view(3, 1, 1))


def _samples(folder: Path) -> tuple[Samples, Samples, int]:
    """Training samples, test samples, and the number of classes."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder `{folder}`. `--data folder:PATH` needs a folder with `train` and "
            "`val` (or `test`), each with one subfolder of images per class."
        )
    try:
        return _two_parts(folder) if (folder / "train").is_dir() else _one_part(folder)
    except FileNotFoundError as error:  # torchvision raises it for a folder without classes
        raise FileNotFoundError(f"`{folder}` has no images in subfolders: {error}") from error


def _one_part(folder: Path) -> tuple[Samples, Samples, int]:
    found = vision.torchvision().datasets.ImageFolder(folder)
    held_out = found.samples[::10]
    kept = [sample for i, sample in enumerate(found.samples) if i % 10]
    return kept or held_out, held_out, len(found.classes)


def _two_parts(folder: Path) -> tuple[Samples, Samples, int]:
    other = next((folder / name for name in ("val", "test") if (folder / name).is_dir()), None)
    if other is None:
        raise FileNotFoundError(f"`{folder}` has `train`, but neither `val` nor `test`.")
    image_folder = vision.torchvision().datasets.ImageFolder
    train, test = image_folder(folder / "train"), image_folder(other)
    if train.classes != test.classes:
        raise ValueError(f"`{folder}`: training and test images have different classes.")
    return train.samples, test.samples, len(train.classes)


def _shorter_edge(path: str) -> int:
    from PIL import Image

    with Image.open(path) as image:
        return min(image.size)


def _decoded(samples: Samples, size: int) -> MemoryImages:
    images = torch.empty(len(samples), 3, size, size, dtype=torch.uint8)
    paths = [path for path, _ in samples]
    with ThreadPoolExecutor(WORKERS) as pool, Progress("reading images", len(paths)) as bar:
        for done, image in enumerate(pool.map(lambda path: decode(path, size, False), paths)):
            images[done] = image
            if done % 100 == 0:
                bar.show(done)
    return MemoryImages(images, torch.tensor([target for _, target in samples]))
