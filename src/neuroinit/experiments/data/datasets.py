"""Images by name: digits, CIFAR-10 and CIFAR-100, and any folder of classes.

Images that fit are held in memory as bytes and augmented batch by batch on tensors; a folder that
does not fit (ImageNet) is decoded by workers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch

from neuroinit.common.checks import check_count
from neuroinit.common.errors import needs_extra
from neuroinit.common.progress import Progress
from neuroinit.experiments import vision
from neuroinit.experiments.data.images import WORKERS, Data, Files, Images, decode, pick

NAMES = "`digits`, `cifar10`, `cifar100` or `folder:PATH`"
MEMORY = 4 * 2**30  # bytes of images above which a folder is decoded on the way
MOMENTS = 2**28  # most pixel values of which mean and deviation are taken
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@lru_cache(maxsize=2)
def load(
    name: str,
    root: Path = Path("data"),
    download: bool = False,
    train_images: int | None = None,
    test_images: int | None = None,
    image_size: int | None = None,
) -> Data:
    """Training and test images by name.

    Args:
        name: ``digits`` (8x8, no download), ``cifar10``, ``cifar100`` or ``folder:PATH``: a folder
            with ``train`` and ``val`` (or ``test``), each with one folder a class; or with the
            classes themselves, of which every tenth image is then for testing.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        train_images: Use this many training images, always the same ones; all by default.
        test_images: The same for testing.
        image_size: Edge that images get; by default as they are, in a folder that of the first.

    Raises:
        ValueError: There is no such data.
        FileNotFoundError: It is not where it should be; the message says what to do.

    Example:
        >>> data = load("digits")
        >>> data.train.images.shape, data.classes
        (torch.Size([1437, 3, 8, 8]), 10)
    """
    counts = {"train_images": train_images, "test_images": test_images, "image_size": image_size}
    for what, count in counts.items():
        if count is not None:
            check_count(what, count, 1)
    if name == "digits":
        return _in_memory(*_digits(), 10, *counts.values())
    if name in ("cifar10", "cifar100"):
        return _in_memory(*_cifar(name, root, download), int(name[5:]), *counts.values())
    if name.startswith("folder:"):
        folder = Path(name.removeprefix("folder:")).expanduser()
        return _folder(folder, train_images, test_images, image_size)
    raise ValueError(f"There is no data `{name}`. Choose {NAMES}.")


def _in_memory(
    train: Images,
    test: Images,
    classes: int,
    train_images: int | None = None,
    test_images: int | None = None,
    image_size: int | None = None,
) -> Data:
    train, test = train.subset(train_images, image_size), test.subset(test_images, image_size)
    values = 3 * image_size**2 if image_size else train.images[0].numel()
    some, _ = next(train.batches([pick(len(train), max(1, MOMENTS // values))]))
    pixels = some.float().div_(255)
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    return Data(train, test, classes, mean.view(3, 1, 1), std.view(3, 1, 1))


def _digits() -> tuple[Images, Images]:
    with needs_extra("experiments"):
        from sklearn.datasets import load_digits
    values, labels = load_digits(return_X_y=True)
    images = torch.tensor(values * (255 / 16)).round().to(torch.uint8).view(-1, 1, 8, 8)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, targets = images[order].repeat(1, 3, 1, 1), torch.tensor(labels)[order]
    cut = len(order) * 4 // 5
    return Images(images[:cut], targets[:cut]), Images(images[cut:], targets[cut:])


def _cifar(name: str, root: Path, download: bool) -> tuple[Images, Images]:
    datasets = vision.torchvision().datasets
    dataset = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    try:
        found = [dataset(root, train=train, download=download) for train in (True, False)]
    except URLError as error:
        raise FileNotFoundError(
            f"{name} could not be fetched ({error.reason}). Put its files into `{root}` by hand, "
            "or use other data: `--data folder:PATH`."
        ) from error
    except RuntimeError as error:  # what torchvision raises for missing and for damaged files
        raise FileNotFoundError(
            f"{name} is not in `{root}`: pass `--download` to fetch it, or `--root` to say where "
            f"it is. (torchvision says: {error})"
        ) from error
    train, test = (
        Images(torch.from_numpy(f.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(f.targets))
        for f in found
    )
    return train, test


def _folder(
    folder: Path, train_images: int | None, test_images: int | None, image_size: int | None
) -> Data:
    train, test, classes = _samples(folder)
    train = [train[i] for i in pick(len(train), train_images)]
    test = [test[i] for i in pick(len(test), test_images)]
    size = image_size or _edge(train[0][0])
    if 3 * size**2 * (len(train) + len(test)) > MEMORY:
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        files = Files(train, size), Files(test, size)
        return Data(*files, classes, mean.view(3, 1, 1), std.view(3, 1, 1))
    return _in_memory(_decoded(train, size), _decoded(test, size), classes)


def _samples(folder: Path) -> tuple[list[Any], list[Any], int]:
    """Paths and classes for training and for testing, and the number of classes."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder `{folder}`. `--data folder:PATH` needs one with `train` and `val` "
            "(or `test`) folders, each with one folder of images a class."
        )
    image_folder = vision.torchvision().datasets.ImageFolder
    try:
        if not (folder / "train").is_dir():
            found = image_folder(folder)
            held_out = found.samples[::10]
            kept = [sample for i, sample in enumerate(found.samples) if i % 10]
            return kept or held_out, held_out, len(found.classes)
        other = next((folder / n for n in ("val", "test") if (folder / n).is_dir()), None)
        if other is None:
            raise FileNotFoundError(f"`{folder}` has `train`, but neither `val` nor `test`.")
        train, test = image_folder(folder / "train"), image_folder(other)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"`{folder}` is no folder of classes: {error}") from error
    if train.classes != test.classes:
        raise ValueError(f"`{folder}`: training and test images have different classes.")
    return train.samples, test.samples, len(train.classes)


def _edge(path: str) -> int:
    from PIL import Image

    with Image.open(path) as image:
        return min(image.size)


def _decoded(samples: list[tuple[str, int]], size: int) -> Images:
    images = torch.empty(len(samples), 3, size, size, dtype=torch.uint8)
    paths = [path for path, _ in samples]
    with ThreadPoolExecutor(WORKERS) as pool, Progress("reading images", len(paths)) as bar:
        for done, image in enumerate(pool.map(lambda path: decode(path, size, False), paths)):
            images[done] = image
            if done % 100 == 0:
                bar.show(done)
    return Images(images, torch.tensor([target for _, target in samples]))
