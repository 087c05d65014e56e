"""The demo's data and loop: scikit-learn's digits, and SGD with nothing added."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

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
    make: Callable[[Iterable[Tensor]], Optimizer] | None = None,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
) -> Training:
    """Plain SGD with a constant learning rate: no warmup, no clipping, no schedule.

    Or with the optimizer that ``make`` makes, and the schedule that ``schedule`` gives it.
    """
    steps = epochs * (len(data.train[0]) // batch_size)
    optimizer = (make or (lambda p: SGD(p, lr=lr, momentum=momentum)))(model.parameters())
    scheduler = schedule(optimizer) if schedule is not None else None
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
        if scheduler is not None:
            scheduler.step()
    return Training(losses, accuracy(model, data))


@torch.no_grad()
def accuracy(model: nn.Module, data: Split) -> float:
    """Share of the test data that is classified correctly."""
    model.eval()
    inputs, targets = data.test
    return float((model(inputs).argmax(1) == targets).double().mean())
