"""Training and test data as tensors in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]  # inputs and targets


@dataclass(frozen=True)
class Split:
    """Training and test data in memory.

    Args:
        train: Inputs and targets for training.
        test: Inputs and targets for testing.
    """

    train: Batch
    test: Batch

    def batches(self, count: int, size: int, seed: int) -> list[Batch]:
        """Make ``count`` training batches of ``size`` samples.

        The data is shuffled before each pass over it. An incomplete batch at the end of a pass is
        dropped.
        """
        generator = torch.Generator().manual_seed(seed)
        inputs, targets = self.train
        found: list[Batch] = []
        while len(found) < count:
            order = torch.randperm(len(inputs), generator=generator)
            full = order[: len(order) // size * size].view(-1, size)
            found += [(inputs[index], targets[index]) for index in full]
        return found[:count]
