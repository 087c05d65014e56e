"""Data of two suites: images that were distorted, and figures that were drawn."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.trainability.networks.distortions import DISTORTIONS, SIDE
from benchmarks.trainability.networks.strokes import FIGURES, POINTS
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import MemoryImages
from neuroinit.experiments.data.split import Split


@cache
def distortions(source: str, train: int = 6400, test: int = 1200) -> Split:
    """The middle of images of CIFAR-10, distorted; the class is how. Chance is 1/6.

    Test images are distorted test images. In these 200 steps, from torch's start, networks that
    train come to 58-80%, and the others to 15-47%: a cell trains from 50%.
    """
    found = load(source, train_images=train, test_images=test)
    generator = torch.Generator().manual_seed(31)

    def distorted(part: object) -> tuple[Tensor, Tensor]:
        if not isinstance(part, MemoryImages):
            raise ValueError(f"`{source}` is too large for this. Choose `cifar10` or a copy of it.")
        kinds = _distorted(found.normalized(part.images), generator)
        classes = torch.randint(DISTORTIONS, (len(part),), generator=generator)
        chosen = kinds[classes, torch.arange(len(part))]
        edge = (chosen.shape[-1] - SIDE) // 2
        return chosen[:, :, edge : edge + SIDE, edge : edge + SIDE].contiguous(), classes

    (inputs, targets), tests = distorted(found.train), distorted(found.test)
    scale = inputs.std()
    return Split((inputs / scale, targets), (tests[0] / scale, tests[1]))


def _distorted(x: Tensor, generator: torch.Generator) -> Tensor:
    """As they are, blurred, noisy, of 2x2 blocks, double, or with every second row shifted."""
    interlaced = x.clone()
    interlaced[:, :, ::2] = x[:, :, ::2].roll(3, 3)
    noise = torch.randn(x.shape, generator=generator)
    blocks = F.avg_pool2d(x, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    blurred = F.avg_pool2d(x, 3, 1, padding=1)
    double = (x + x.roll(3, 3)) / 2
    return torch.stack([x, blurred, x + 0.4 * noise, blocks, double, interlaced])


@cache
def strokes(train: int = 6400, test: int = 1200) -> Split:
    """Points along a figure that a pen drew; the class is which. Chance is 1/6.

    The figures are stretched, turned a little, moved, begun somewhere and drawn in either direction
    with a trembling hand. In these 300 steps, from torch's start, networks that train come to
    65-85%, and the others to 16-53%: a cell trains from 60%.
    """
    count, generator = train + test, torch.Generator().manual_seed(32)

    def drawn(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    figures = _figures(drawn(0, 1, 1))
    classes = torch.randint(FIGURES, (count,), generator=generator)
    points = figures[classes, torch.arange(count)]
    backwards = drawn(0, 1) < 0.5
    points[backwards] = points[backwards].flip(1)
    points = points * drawn(0.7, 1.3, 1, 2)
    angle = drawn(-0.4, 0.4)
    turned = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    points = points @ turned + drawn(-0.2, 0.2, 1, 2)
    points = points + 0.08 * torch.randn(points.shape, generator=generator)
    points = points / points[:train].std()
    return Split((points[:train], classes[:train]), (points[train:], classes[train:]))


def _figures(begun: Tensor) -> Tensor:
    """Circle, triangle, square, eight, spiral and zigzag for each beginning, ``(count, 1)``."""
    along = (torch.arange(POINTS) / POINTS + begun) % 1  # of a closed figure
    line = (torch.arange(POINTS) + 0.5) / POINTS + 0 * begun
    turn, winding = 2 * torch.pi * along, 2 * torch.pi * (2 * line + begun)
    waves = (1 + 2 * begun) * line % 1
    found = (
        torch.stack([turn.cos(), turn.sin()], 2),
        _polygon([(0.0, 1.2), (-1.1, -0.8), (1.1, -0.8)], along),
        _polygon([(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)], along),
        torch.stack([turn.sin(), (2 * turn).sin()], 2),
        torch.stack([line * winding.cos(), line * winding.sin()], 2) * 1.3,
        torch.stack([2 * line - 1, 2 * (2 * waves - 1).abs() - 1], 2),
    )
    return torch.stack(found)


def _polygon(corners: list[tuple[float, float]], along: Tensor) -> Tensor:
    """Points of its sides; from 0 to 1 is once around it."""
    ends = torch.tensor([*corners, corners[0]])
    side = (along * len(corners)).long().clamp(max=len(corners) - 1)
    rest = (along * len(corners) - side)[..., None]
    return ends[side] * (1 - rest) + ends[side + 1] * rest
