"""Parameters that are DTensors: ``fully_shard`` and tensor parallelism."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a DTensor, as ``fully_shard`` and tensor parallelism make them."""
    return type(tensor).__module__.startswith("torch.distributed.tensor")


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a DTensor, sharing its memory; any other tensor as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def replicas(tensor: Any, world: int) -> int:
    """How many ranks hold the same entries of a tensor."""
    if not is_sharded(tensor):
        return world
    mesh = tensor.device_mesh
    different = [int(mesh.size(k)) for k, p in enumerate(tensor.placements) if p.is_shard()]
    return world // math.prod(different)


def fully_sharded(model: nn.Module, world: int) -> bool:
    """Whether all ranks are data parallel: every parameter is sharded over one mesh of all."""
    return all(
        is_sharded(p) and p.device_mesh.ndim == 1 and p.device_mesh.size() == world  # type: ignore[attr-defined]
        for p in model.parameters()
    ) and any(hasattr(module, "reshard") for module in model.modules())


def reshard(model: nn.Module) -> None:
    """Free what ``fully_shard`` has gathered, so that it gathers the shards' present values."""
    for module in model.modules():
        free = getattr(module, "reshard", None)
        if "FSDP" in type(module).__name__ and callable(free):
            free()
