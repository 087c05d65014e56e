"""Measure memory: of an accelerator, or of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from neuroinit.common.process.accelerator import allocated_memory

CPU = torch.device("cpu")


def memory_in_use(device: torch.device = CPU) -> int:
    """Memory in use now, in bytes.

    Args:
        device: For an accelerator, what PyTorch has allocated there. For any other device, the
            resident memory of this process; on systems without ``/proc``, its peak.
    """
    allocated = allocated_memory(device)
    if allocated is not None:
        return allocated
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return peak_memory(device)
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_memory(device: torch.device = CPU) -> int:
    """Largest memory in use since the process started, in bytes.

    Args:
        device: As for :func:`memory_in_use`.
    """
    allocated = allocated_memory(device, peak=True)
    if allocated is not None:
        return allocated
    import resource  # does not exist on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
