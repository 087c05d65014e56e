"""Batches for those who have no data at hand: random inputs and random labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuroinit.checks import check_count

LEAST = 32  # samples of a batch in place of data


@dataclass(frozen=True, eq=False)
class RandomBatches:
    """An endless iterable of ``(inputs, labels)``; every pass over it starts anew.

    ``shape`` is that of the labels of one sample: none for a label each.
    """

    example: Tensor
    classes: int
    seed: int
    size: int
    moments: tuple[float, float] | None = None  # mean and standard deviation; the example's
    shape: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        shape, labels = (self.size, *self.example.shape[1:]), (self.size, *self.shape)
        mean, std = self.moments or self._moments()
        while True:
            if self.example.is_floating_point():
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
                inputs = (mean + std * drawn).to(self.example)
            else:
                highest = int(self.example.max()) + 1
                drawn = torch.randint(highest, shape, generator=generator, device="cpu")
                inputs = drawn.to(self.example)
            yield inputs, torch.randint(self.classes, labels, generator=generator, device="cpu")

    def _moments(self) -> tuple[float, float]:
        wide = self.example.double()
        return float(wide.mean()), float(wide.std(correction=0))


def random_batches(
    example: Tensor | Sequence[int], classes: int, seed: int = 0, size: int | None = None
) -> RandomBatches:
    """Random inputs with random labels, as MetaInit's paper uses in place of data.

    Args:
        example: A batch of inputs: normal values with its mean and standard deviation are drawn, or
            for integers, such as tokens, uniform ones up to the largest. Or a shape, for standard
            normal values.
        classes: Number of labels.
        seed: Of the random numbers.
        size: Samples of a batch; as many as the example has by default.

    Example:
        >>> inputs, labels = next(iter(random_batches((16, 3, 8, 8), classes=10)))
        >>> inputs.shape, labels.shape
        (torch.Size([16, 3, 8, 8]), torch.Size([16]))
    """
    check_count("classes", classes, 1)
    moments = None
    if not isinstance(example, Tensor):
        if not isinstance(example, Sequence) or not all(isinstance(n, int) for n in example):
            raise TypeError(
                "Parameter `example` should be a batch of inputs or a shape such as "
                f"`(64, 3, 32, 32)`. Found `example = {example!r}`."
            )
        example, moments = torch.zeros(tuple(example), device="cpu"), (0.0, 1.0)
    if example.dim() == 0 or example.numel() == 0:
        raise ValueError(
            f"Parameter `example` should be a batch of inputs. Found shape {tuple(example.shape)}."
        )
    if size is not None:
        check_count("size", size, 1)
    return RandomBatches(example, classes, seed, size or len(example), moments)


def in_place_of_data(
    example: Tensor | Sequence[int], run: Callable[[Tensor], Any], seed: int
) -> RandomBatches:
    """Random batches for a classifier: how many classes there are is read from its output.

    Args:
        example: As for :func:`random_batches`; fewer than 32 samples stand for batches of 32.
        run: The model.
        seed: Of the random numbers.
    """
    one = random_batches(example, 1, seed)
    drawn = replace(one, size=max(one.size, LEAST))
    output = run(next(iter(drawn))[0])
    if not isinstance(output, Tensor) or output.dim() < 2 or len(output) != drawn.size:
        what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            "Without `batches`, random labels are drawn, for a model that puts out class scores "
            f"`(samples, classes, ...)`. Found {what}. Pass `batches`."
        )
    return replace(drawn, classes=output.shape[1], shape=tuple(output.shape[2:]))
