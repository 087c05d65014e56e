"""A short training loop for small networks and data in memory, without files and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from neuroinit.experiments.data.split import Split
from neuroinit.experiments.training.optimizers import take_step


@dataclass(frozen=True)
class Training:
    """The result of :func:`train`.

    Args:
        losses: Training loss of every step.
        accuracy: Share of the test samples that are classified correctly at the end.
    """

    losses: list[float]
    accuracy: float

    @property
    def diverged(self) -> bool:
        """Whether the last loss was not finite; training stopped there."""
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
    make_optimizer: Callable[[Iterable[Tensor]], Optimizer] | None = None,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
) -> Training:
    """Train a classifier in place, and test it.

    The default is SGD with a constant learning rate, without warmup and clipping. Training stops at
    a loss that is not finite.

    Args:
        model: The classifier.
        data: Training and test data.
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
        epochs: Number of passes over the training data.
        batch_size: Samples in a batch.
        seed: Seed of the order of the data.
        make_optimizer: Makes another optimizer than SGD from the parameters.
        schedule: Makes a learning rate schedule from the optimizer; it advances every step.
    """
    steps = epochs * (len(data.train[0]) // batch_size)
    parameters = model.parameters()
    optimizer = make_optimizer(parameters) if make_optimizer else SGD(parameters, lr, momentum)
    scheduler = schedule(optimizer) if schedule is not None else None
    losses: list[float] = []
    model.train()
    for inputs, targets in data.batches(steps, batch_size, seed):
        losses.append(take_step(optimizer, F.cross_entropy(model(inputs), targets)))
        if not math.isfinite(losses[-1]):
            break
        if scheduler is not None:
            scheduler.step()
    return Training(losses, accuracy(model, data))


@torch.no_grad()
def accuracy(model: nn.Module, data: Split) -> float:
    """Share of the test data that is classified correctly; puts the model in eval mode."""
    model.eval()
    inputs, targets = data.test
    return float((model(inputs).argmax(1) == targets).double().mean())
