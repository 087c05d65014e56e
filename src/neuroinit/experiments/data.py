"""Data that needs no download."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Split:
    """Training and test data in memory."""

    train: Batch
    test: Batch

    def batches(self, count: int, size: int, seed: int) -> list[Batch]:
        """Batches of the training data, in as many shuffled passes as it takes."""
        generator = torch.Generator().manual_seed(seed)
        inputs, targets = self.train
        found: list[Batch] = []
        while len(found) < count:
            order = torch.randperm(len(inputs), generator=generator)
            full = order[: len(order) // size * size].view(-1, size)
            found += [(inputs[index], targets[index]) for index in full]
        return found[:count]


def digits() -> Split:
    """scikit-learn's 1,797 handwritten digits, 8x8, as ``(N, 1, 8, 8)`` with unit variance.

    Four fifths are for training. Inputs are standardized by the training data's mean and
    standard deviation.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)
    targets = torch.tensor(labels)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, targets, cut = inputs[order], targets[order], len(order) * 4 // 5
    mean, std = inputs[:cut].mean(), inputs[:cut].std()
    inputs = (inputs - mean) / std
    return Split((inputs[:cut], targets[:cut]), (inputs[cut:], targets[cut:]))
