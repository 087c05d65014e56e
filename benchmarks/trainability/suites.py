"""The suites: networks, data and optimizers.

| suite | what the present `nio_` and `auto_` were chosen on |
|---|---|
| ``digits`` | every other network; the others are for claims |
| ``fresh``, ``letters``, ``quadrants``, ``sequences`` | all networks |
| ``other``, ``distortions``, ``strokes`` | nothing; for claims |

``distortions`` and ``strokes`` were made last, without knowledge of how any method decides; their
networks, rates and thresholds were set by the starts as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RMSprop

from benchmarks.text.char_gpt import batches
from benchmarks.trainability.drawn_data import distortions, strokes
from benchmarks.trainability.networks.digits import NETWORKS
from benchmarks.trainability.networks.distortions import DISTORTION_NETWORKS
from benchmarks.trainability.networks.fresh import FRESH_NETWORKS
from benchmarks.trainability.networks.letters import LENGTH, LETTER_NETWORKS
from benchmarks.trainability.networks.other import OTHER_NETWORKS
from benchmarks.trainability.networks.quadrants import QUADRANT_NETWORKS, SIDE
from benchmarks.trainability.networks.sequences import CLASSES, KINDS, SEQUENCE_NETWORKS, TOKENS
from benchmarks.trainability.networks.strokes import STROKE_NETWORKS
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.data.images import MemoryImages, decode
from neuroinit.experiments.data.split import Split

HERE = Path(__file__).parent
MakeOptimizer = Callable[[Iterable[Tensor]], Optimizer]


@dataclass(frozen=True)
class Suite:
    """Networks, data and optimizers.

    Args:
        name: Of its results and its figure.
        networks: By name.
        optimizers: By name.
        data: Gives training and test data, from where the images are.
        epochs: Of a training.
        good: Test accuracy from which a cell trains.
        seeds: How many are run.
    """

    name: str
    networks: dict[str, Callable[[], nn.Module]]
    optimizers: dict[str, MakeOptimizer]
    data: Callable[[str], Split]
    epochs: int
    good: float
    seeds: int

    @property
    def results(self) -> Path:
        """Where its results are appended."""
        return HERE / f"{self.name}.jsonl"

    @property
    def picture(self) -> Path:
        """Where its figure goes."""
        suffix = "" if self.name == "digits" else f"-{self.name}"
        return HERE.parents[1] / "docs/evidence" / f"trainability{suffix}.png"


@cache
def small_images(source: str, train: int = 4000, pool: int = 2) -> Split:
    """Some training images and 1,000 test images of CIFAR-10, made smaller."""
    found = load(source, train_images=train, test_images=1000)

    def pooled(part: object) -> tuple[Tensor, Tensor]:
        if not isinstance(part, MemoryImages):
            raise ValueError(f"`{source}` is too large for this. Choose `cifar10` or a copy of it.")
        return F.avg_pool2d(found.normalized(part.images), pool), part.targets

    (inputs, targets), test = pooled(found.train), pooled(found.test)
    scale = inputs.std()
    return Split((inputs / scale, targets), (test[0] / scale, test[1]))


@cache
def letters(source: str, train: int = 6400, test: int = 1000) -> Split:
    """Some letters of a text, and the next one; of its last tenth for tests."""

    def windows(part: str, count: int) -> tuple[Tensor, Tensor]:
        [(inputs, following)] = batches(source, 1, 7, part, count, LENGTH)
        return inputs, following[:, -1]

    return Split(windows("train", train), windows("test", test))


@cache
def quadrants(source: str, train: int = 800, test: int = 200) -> Split:
    """Images of a folder, four times each: a quarter of it is a negative, and the class is which.

    Other images for tests. Small networks hardly learn in so few steps how these images are turned.
    """
    found = sorted(Path(source.removeprefix("folder:")).expanduser().glob("*/*.*"))
    if len(found) < train + test:
        raise ValueError(f"`{source}` has {len(found)} images, fewer than {train + test}.")
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(7))
    chosen = [str(found[k]) for k in order[: train + test]]
    small = torch.stack([decode(path, SIDE, crop=False) for path in chosen]).float()
    small = (small - small[:train].mean((0, 2, 3), keepdim=True)) / small[:train].std()
    signs = torch.ones(4, 1, 2, 2)
    signs.view(4, 4).fill_diagonal_(-1)
    signs = signs.repeat_interleave(SIDE // 2, 2).repeat_interleave(SIDE // 2, 3)

    def inverted(images: Tensor) -> tuple[Tensor, Tensor]:
        classes = torch.arange(4).repeat_interleave(len(images))
        return torch.cat([images * sign for sign in signs]), classes

    return Split(inverted(small[:train]), inverted(small[train:]))


@cache
def sequences(train: int = 6400, test: int = 1000) -> Split:
    """Random tokens; the class is the one of the first few kinds that is there most often."""
    generator = torch.Generator().manual_seed(18)
    drawn = torch.randint(KINDS, (4 * (train + test), TOKENS), generator=generator)
    counts = (drawn[:, :, None] == torch.arange(CLASSES)).sum(1)
    (first, second), winner = counts.topk(2)[0].T, counts.argmax(1)
    clear = first > second
    inputs, targets = drawn[clear][: train + test], winner[clear][: train + test]
    return Split((inputs[:train], targets[:train]), (inputs[train:], targets[train:]))


SUITES = {
    "digits": Suite(
        "digits",
        NETWORKS,
        {
            "SGD 0.1, momentum 0.9": lambda p: SGD(p, lr=0.1, momentum=0.9),
            "SGD 0.02, momentum 0.9": lambda p: SGD(p, lr=0.02, momentum=0.9),
            "AdamW 0.003": lambda p: AdamW(p, lr=3e-3),
        },
        lambda source: digits(),
        epochs=6,
        good=0.9,
        seeds=3,
    ),
    "other": Suite(
        "other",
        OTHER_NETWORKS,
        {
            "SGD 0.05, momentum 0.9": lambda p: SGD(p, lr=0.05, momentum=0.9),
            "Adam 0.001": lambda p: Adam(p, lr=1e-3),
        },
        small_images,
        epochs=3,
        good=0.25,
        seeds=3,
    ),
    "fresh": Suite(
        "fresh",
        FRESH_NETWORKS,
        {
            "SGD 0.05, momentum 0.9": lambda p: SGD(p, lr=0.05, momentum=0.9),
            "SGD 0.01, momentum 0.9": lambda p: SGD(p, lr=0.01, momentum=0.9),
            "Adam 0.002": lambda p: Adam(p, lr=2e-3),
        },
        lambda source: small_images(source, 3200, 4),
        epochs=3,
        good=0.25,
        seeds=3,
    ),
    "letters": Suite(
        "letters",
        LETTER_NETWORKS,
        {
            "SGD 0.2": lambda p: SGD(p, lr=0.2),
            "SGD 0.02, Nesterov 0.9": lambda p: SGD(p, lr=0.02, momentum=0.9, nesterov=True),
            "AdamW 0.004": lambda p: AdamW(p, lr=4e-3),
        },
        letters,
        epochs=2,
        good=0.25,  # the most frequent letter is 15% of the text
        seeds=2,
    ),
    "quadrants": Suite(
        "quadrants",
        QUADRANT_NETWORKS,
        {
            "SGD 0.1": lambda p: SGD(p, lr=0.1),
            "SGD 0.03, momentum 0.9": lambda p: SGD(p, lr=0.03, momentum=0.9),
            "AdamW 0.0015": lambda p: AdamW(p, lr=1.5e-3),
        },
        quadrants,
        epochs=4,
        good=0.5,  # chance is 25%
        seeds=2,
    ),
    "sequences": Suite(
        "sequences",
        SEQUENCE_NETWORKS,
        {
            "SGD 0.3": lambda p: SGD(p, lr=0.3),
            "SGD 0.05, Nesterov 0.9": lambda p: SGD(p, lr=0.05, momentum=0.9, nesterov=True),
            "Adam 0.006": lambda p: Adam(p, lr=6e-3),
        },
        lambda source: sequences(),
        epochs=2,
        good=0.6,  # the most frequent class is 27% of the test data
        seeds=2,
    ),
    "distortions": Suite(
        "distortions",
        DISTORTION_NETWORKS,
        {
            "SGD 0.04, momentum 0.9": lambda p: SGD(p, lr=0.04, momentum=0.9, weight_decay=5e-4),
            "AdamW 0.002": lambda p: AdamW(p, lr=2e-3, weight_decay=0.05),
            "RMSprop 0.001": lambda p: RMSprop(p, lr=1e-3),
        },
        distortions,
        epochs=2,
        good=0.5,  # chance is 17%
        seeds=3,
    ),
    "strokes": Suite(
        "strokes",
        STROKE_NETWORKS,
        {
            "SGD 0.12": lambda p: SGD(p, lr=0.12),
            "SGD 0.03, Nesterov 0.9": lambda p: SGD(p, lr=0.03, momentum=0.9, nesterov=True),
            "NAdam 0.01": lambda p: NAdam(p, lr=1e-2),
        },
        lambda source: strokes(),
        epochs=3,
        good=0.6,  # chance is 17%
        seeds=3,
    ),
}
