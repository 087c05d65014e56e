"""Operators and waits of a step on an accelerator, counted on the test device.

The device is `tests/run/accelerator/device.py`. With it torch has an accelerator, so call this in a
process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuroinit as ni
from neuroinit.common.batches import moved

Count = dict[str, int]


def step_counts(
    model: nn.Module,
    batch: Any,
    method: Any,
    engine: str = "keep",
    loss_fn: Callable[[Any, Any], Tensor] | None = F.cross_entropy,
    compute_loss: Callable[[Any, Any], Tensor] | None = None,
) -> dict[str, Count]:
    """What a training step, the first step of a method and its last step do on the device.

    Args:
        model: On the CPU; it is moved to the device.
        batch: On the CPU.
        method: It takes all its steps: ``tolerance=0.0``.
        engine: As for :func:`neuroinit.optimize`.
        loss_fn: The loss of pairs.
        compute_loss: The loss of other batches.

    Returns:
        For ``training``, ``first`` and ``step``: ``operators`` (kernels that are launched),
        ``views``, ``copies`` to the device, and ``waits`` for it.
    """
    from tests.run.accelerator.device import COUNTS, NAME

    model, own = model.to(NAME), moved(batch, torch.device(NAME))
    laps: list[Count] = []

    def lap(record: Any = None) -> None:
        laps.append(dict(vars(COUNTS)))

    lap()
    if compute_loss is not None:
        loss = compute_loss(model, own)
    elif loss_fn is not None:
        loss = loss_fn(model(own[0]), own[1])
    loss.backward()
    lap()
    model.zero_grad()
    ni.optimize(
        model,
        [own],
        loss_fn,
        method=method,
        compute_loss=compute_loss,
        engine=engine,
        progress=False,
        on_step=lap,
    )
    pairs = {"training": laps[:2], "first": laps[1:3], "step": laps[-2:]}
    return {
        name: {key: after[key] - before[key] for key in after}
        for name, (before, after) in pairs.items()
    }
