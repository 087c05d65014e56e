"""Load image data by name: digits, CIFAR-10, CIFAR-100, or a folder with one subfolder per class.

Images are held in memory as bytes and augmented batch by batch on tensors. A folder that does not
fit (ImageNet) is decoded by worker processes instead.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.error import URLError

import torch

from neuroinit.common.checks import check_count
from neuroinit.experiments import vision
from neuroinit.experiments.data.digits import HIGHEST, raw_digits
from neuroinit.experiments.data.image_folders import load_folder
from neuroinit.experiments.data.images import ImageData, MemoryImages
from neuroinit.experiments.data.split import Batch

NAMES = "`digits`, `cifar10`, `cifar100` or `folder:PATH`"


@lru_cache(maxsize=2)
def load(
    name: str,
    root: Path = Path("data"),
    download: bool = False,
    train_images: int | None = None,
    test_images: int | None = None,
    image_size: int | None = None,
) -> ImageData:
    """Load training and test images by name.

    Args:
        name: ``digits`` (8x8 pixels, no download), ``cifar10``, ``cifar100`` or ``folder:PATH``.
            The folder contains ``train`` and ``val`` (or ``test``), each with one subfolder per
            class; or only one subfolder per class: then every tenth image is used for testing.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        train_images: Use only this many training images, the same in every run.
        test_images: Use only this many test images, the same in every run.
        image_size: Resize images to this height and width. By default they keep their size; images
            in a folder get the shorter edge of the first one.

    Raises:
        ValueError: The name is unknown.
        FileNotFoundError: The files are missing; the message says what to do.

    Example:
        >>> data = load("digits")
        >>> data.train.images.shape, data.classes
        (torch.Size([1437, 3, 8, 8]), 10)
    """
    counts = {"train_images": train_images, "test_images": test_images, "image_size": image_size}
    for what, count in counts.items():
        if count is not None:
            check_count(what, count, 1)
    if name.startswith("folder:"):
        folder = Path(name.removeprefix("folder:")).expanduser()
        return load_folder(folder, train_images, test_images, image_size)
    if name == "digits":
        train, test = _digits()
    elif name in ("cifar10", "cifar100"):
        train, test = _cifar(name, root, download)
    else:
        raise ValueError(f"There is no data `{name}`. Choose {NAMES}.")
    return ImageData.in_memory(
        train.subset(train_images, image_size),
        test.subset(test_images, image_size),
        classes=100 if name == "cifar100" else 10,
    )


def _digits() -> tuple[MemoryImages, MemoryImages]:
    def as_images(part: Batch) -> MemoryImages:
        pixels = (part[0] * (255 / HIGHEST)).round().to(torch.uint8)
        return MemoryImages(pixels.repeat(1, 3, 1, 1), part[1])

    raw = raw_digits()
    return as_images(raw.train), as_images(raw.test)


def _cifar(name: str, root: Path, download: bool) -> tuple[MemoryImages, MemoryImages]:
    datasets = vision.torchvision().datasets
    dataset = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    try:
        found = [dataset(root, train=train, download=download) for train in (True, False)]
    except URLError as error:
        raise FileNotFoundError(
            f"{name} could not be downloaded ({error.reason}). Put its files into `{root}` "
            "yourself, or use other data: `--data folder:PATH`."
        ) from error
    except RuntimeError as error:  # torchvision raises it for missing and for damaged files
        raise FileNotFoundError(
            f"{name} is not in `{root}`. Pass `--download` to download it, or `--root` to name its "
            f"folder. (torchvision says: {error})"
        ) from error
    train, test = (
        MemoryImages(
            torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(part.targets)
        )
        for part in found
    )
    return train, test
