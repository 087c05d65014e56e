"""Warmup is no initialization; it is here because the paper's tables compare with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR

from neuroinit.common.checks import check_count
from neuroinit.methods.base import Initialization


@dataclass(frozen=True, kw_only=True)
class Warmup(Initialization):
    """Leaves the model as it is, and raises the learning rate linearly in the first steps.

    Args:
        warmup_steps: Steps until the full learning rate; usually one epoch's.

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
        """A scheduler to be stepped after every optimizer step."""
        start = 1 / self.warmup_steps
        return LinearLR(optimizer, start_factor=start, total_iters=self.warmup_steps - 1)
