"""Learning rate warmup. It is not an initialization; the tables of NIO's paper compare with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR

from neuroinit.common.checks import check_count
from neuroinit.methods.base import Initialization


@dataclass(frozen=True, kw_only=True)
class Warmup(Initialization):
    """Keep the model as it is, and raise the learning rate linearly during the first steps.

    Step ``t = 0, 1, ...`` has the learning rate ``lr * min(1, (t + 1) / warmup_steps)``.

    Args:
        warmup_steps: Number of steps until the full learning rate; usually those of one epoch.

    Raises:
        TypeError, ValueError: If ``warmup_steps`` is not a positive integer.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        >>> schedule = Warmup(warmup_steps=10).schedule(optimizer)
        >>> round(optimizer.param_groups[0]["lr"], 3)
        0.01
    """

    warmup_steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("warmup_steps", self.warmup_steps, 1)

    def schedule(self, optimizer: Optimizer) -> LinearLR:
        """A scheduler for an optimizer; call its ``step`` after every step of the optimizer."""
        first = 1 / self.warmup_steps
        return LinearLR(optimizer, start_factor=first, total_iters=self.warmup_steps - 1)
