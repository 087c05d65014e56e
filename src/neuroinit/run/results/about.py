"""A record of the model, the date and the batch size of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torch import nn

from neuroinit.gradients.statistics.gradient_stats import Record


@dataclass(frozen=True)
class About(Record):
    """The model, the date and the batch size of a run.

    Args:
        model: Name of the model's class.
        date: When the run ended, as ISO 8601 with the time zone.
        parameters: Number of parameters in all tensors, frozen ones too; a tied tensor counts once.
        batch_size: Samples in a batch; ``None`` for a method that uses no data.
    """

    model: str
    date: str
    parameters: int
    batch_size: int | None = None


def describe(model: nn.Module, batch_size: int | None = None) -> About:
    """The record of a run that ends now.

    Args:
        model: The model, without wrappers.
        batch_size: Samples in a batch.

    Example:
        >>> describe(nn.Linear(4, 3), batch_size=8).parameters
        15
    """
    return About(
        model=type(model).__name__,
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        batch_size=batch_size,
    )
