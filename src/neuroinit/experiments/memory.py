"""Measure memory: of an accelerator, or of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

CPU = torch.device("cpu")


def memory_in_use(device: torch.device = CPU) -> int:
    """Memory in use now, in bytes.

    Args:
        device: For a CUDA device, what PyTorch has allocated there. For any other device, the
            resident memory of this process; on systems without ``/proc``, its peak.
    """
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return peak_memory(device)
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_memory(device: torch.device = CPU) -> int:
    """Largest memory in use since the process started, in bytes.

    Args:
        device: As for :func:`memory_in_use`.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # does not exist on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
