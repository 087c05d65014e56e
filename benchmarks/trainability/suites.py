"""What is started and trained: the suite that defaults were chosen by, and one that came after.

``digits`` is what the defaults of `NIO()` and `auto_` were chosen by. ``other`` has other networks,
other data and other optimizers, and nothing was chosen by it. ``fresh`` was made after the present
default, which knew neither its networks nor its data nor its optimizers; then candidates of `nio_`
were chosen by it. Nothing was chosen by ``letters``; its text is that of the GPTs which small
branches were chosen by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from benchmarks.text.char_gpt import batches
from benchmarks.trainability.networks.digits import NETWORKS
from benchmarks.trainability.networks.fresh import FRESH_NETWORKS
from benchmarks.trainability.networks.letters import LENGTH, LETTER_NETWORKS
from benchmarks.trainability.networks.other import OTHER_NETWORKS
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.data.images import MemoryImages
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
        seeds=1,
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
}
