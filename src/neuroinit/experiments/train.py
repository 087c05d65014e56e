"""One plain training loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.experiments.data import Split


@dataclass(frozen=True)
class Training:
    """A run: the loss of every step, and what came of it."""

    losses: list[float]
    accuracy: float

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite; the run stopped there."""
        return not math.isfinite(self.losses[-1])


def train(
    model: nn.Module,
    data: Split,
    *,
    lr: float = 0.1,
    momentum: float = 0.0,
    epochs: int = 6,
    batch_size: int = 64,
    seed: int = 0,
) -> Training:
    """Plain SGD with a constant learning rate: no warmup, no clipping, no schedule."""
    steps = epochs * (len(data.train[0]) // batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    losses: list[float] = []
    model.train()
    for inputs, targets in data.batches(steps, batch_size, seed):
        loss = F.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return Training(losses, accuracy(model, data))


@torch.no_grad()
def accuracy(model: nn.Module, data: Split) -> float:
    """Share of the test data that is classified correctly."""
    model.eval()
    inputs, targets = data.test
    return float((model(inputs).argmax(1) == targets).float().mean())
