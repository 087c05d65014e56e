"""The device that experiments run on, and mixed precision there."""

from __future__ import annotations

import torch


def device() -> torch.device:
    """The accelerator of this machine if it has one, else the CPU."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found or torch.device("cpu")


def mixed_precision(where: torch.device, choice: str) -> torch.autocast:
    """A context in which the forward pass runs in bfloat16, or does not.

    Args:
        where: The device.
        choice: ``"on"``, ``"off"``, or ``"auto"``: on accelerators that support bfloat16.
    """
    able = where.type != "cpu" and torch.amp.is_autocast_available(where.type)
    if where.type == "cuda":
        able = torch.cuda.is_bf16_supported()
    return torch.autocast(where.type, torch.bfloat16, choice == "on" or (choice == "auto" and able))
