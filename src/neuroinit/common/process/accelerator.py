"""Random states and memory of the accelerator, of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor


def accelerator_module() -> ModuleType | None:
    """torch's module of the accelerator in use, such as ``torch.cuda``; ``None`` without one."""
    if not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    in_use = getattr(module, "is_initialized", None)  # `torch.mps` has none
    return module if in_use is None or in_use() else None


def random_states() -> list[Tensor]:
    """The state of the generator of every device of the accelerator."""
    module = accelerator_module()
    return [] if module is None else [module.get_rng_state(*i) for i in _devices(module)]


def set_random_states(states: Sequence[Tensor]) -> None:
    """Restore the states that :func:`random_states` returned."""
    module = accelerator_module()
    if module is not None:
        for state, index in zip(states, _devices(module), strict=False):
            module.set_rng_state(state, *index)


def seed_devices(seed: int) -> None:
    """Seed the generator of every device of the accelerator."""
    module = accelerator_module()
    if module is not None:
        getattr(module, "manual_seed_all", module.manual_seed)(seed)


def _devices(module: ModuleType) -> list[tuple[int, ...]]:
    """For each device, the arguments that select it; `torch.mps` has one device and takes none."""
    if module is getattr(torch, "mps", None):
        return [()]
    return [(i,) for i in range(module.device_count())]


def free_device_memory(device: torch.device) -> int | None:
    """Free bytes on an accelerator; ``None`` if its module has no such function."""
    module = torch.get_device_module(device)
    if device.type == "mps":
        return int(module.recommended_max_memory() - module.driver_allocated_memory())
    return int(module.mem_get_info(device)[0]) if hasattr(module, "mem_get_info") else None


def allocated_memory(device: torch.device, peak: bool = False) -> int | None:
    """Bytes that torch has allocated on an accelerator, now or at the peak; ``None`` if unknown."""
    name = "max_memory_allocated" if peak else "memory_allocated"
    module = None if device.type == "cpu" else torch.get_device_module(device)
    return int(getattr(module, name)(device)) if hasattr(module, name) else None
