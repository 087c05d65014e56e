"""Batches for those who have no data at hand: random inputs and random labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.checks import check_count


@dataclass(frozen=True, eq=False)
class RandomBatches:
    """An endless iterable of ``(inputs, labels)``; every pass over it starts anew."""

    example: Tensor
    classes: int
    seed: int
    moments: tuple[float, float] | None = None  # mean and standard deviation; the example's

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        shape, rows = self.example.shape, (len(self.example),)
        mean, std = self.moments or self._moments()
        while True:
            if self.example.is_floating_point():
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
                inputs = (mean + std * drawn).to(self.example)
            else:
                highest = int(self.example.max()) + 1
                drawn = torch.randint(highest, shape, generator=generator, device="cpu")
                inputs = drawn.to(self.example)
            yield inputs, torch.randint(self.classes, rows, generator=generator, device="cpu")

    def _moments(self) -> tuple[float, float]:
        wide = self.example.double()
        return float(wide.mean()), float(wide.std(correction=0))


def random_batches(example: Tensor | Sequence[int], classes: int, seed: int = 0) -> RandomBatches:
    """Random inputs with random labels, as MetaInit's paper uses in place of data.

    Args:
        example: A batch of inputs: normal values with its mean and standard deviation are drawn, or
            for integers, such as tokens, uniform ones up to the largest. Or a shape, for standard
            normal values.
        classes: Number of labels.
        seed: Of the random numbers.

    Example:
        >>> inputs, labels = next(iter(random_batches((16, 3, 8, 8), classes=10)))
        >>> inputs.shape, labels.shape
        (torch.Size([16, 3, 8, 8]), torch.Size([16]))
    """
    check_count("classes", classes, 1)
    if not isinstance(example, Tensor):
        if not isinstance(example, Sequence) or not all(isinstance(n, int) for n in example):
            raise TypeError(
                "Parameter `example` should be a batch of inputs or a shape such as "
                f"`(64, 3, 32, 32)`. Found `example = {example!r}`."
            )
        return RandomBatches(torch.zeros(tuple(example), device="cpu"), classes, seed, (0.0, 1.0))
    if example.dim() == 0 or example.numel() == 0:
        raise ValueError(
            f"Parameter `example` should be a batch of inputs. Found shape {tuple(example.shape)}."
        )
    return RandomBatches(example, classes, seed)
