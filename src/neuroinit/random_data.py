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

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        shape, rows = self.example.shape, (len(self.example),)
        while True:
            if self.example.is_floating_point():
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
                inputs = (drawn * self._std + self.example.double().mean()).to(self.example)
            else:
                highest = int(self.example.max()) + 1
                inputs = torch.randint(highest, shape, generator=generator, device="cpu")
            yield inputs, torch.randint(self.classes, rows, generator=generator, device="cpu")

    @property
    def _std(self) -> float:
        return float(self.example.double().std(correction=0))


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
        example = torch.randn(
            tuple(example), generator=torch.Generator().manual_seed(seed), device="cpu"
        )
        example = (example - example.mean()) / example.std(correction=0)
    if example.dim() == 0 or example.numel() == 0:
        raise ValueError(
            f"Parameter `example` should be a batch of inputs. Found shape {tuple(example.shape)}."
        )
    return RandomBatches(example, classes, seed)
