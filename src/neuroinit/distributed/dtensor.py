"""Helpers for parameters that are DTensors, from ``fully_shard`` or tensor parallelism."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard, cast

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor, Placement, Shard


def is_sharded(tensor: object) -> TypeGuard[DTensor]:
    """Whether this is a DTensor."""
    return is_sharded_type(type(tensor))


def is_sharded_type(kind: type) -> bool:
    """Whether a type is DTensor, by its module's name, because that module is slow to import."""
    return kind.__module__.startswith("torch.distributed.tensor")


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a DTensor, sharing its memory; any other tensor as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All entries of a DTensor, gathered from the ranks; any other tensor as it is."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def all_zero(tensor: Tensor) -> bool:
    """Whether all entries are zero, over all shards."""
    return not bool(whole((tensor.detach() != 0).sum()))


def like_parameter(gradient: Tensor, parameter: Tensor) -> Tensor:
    """A gradient with the placements of its parameter, so that local shards have equal entries.

    The gradient of a replicated parameter can be ``Partial``: every rank has a summand.
    """
    if not is_sharded(gradient) or not is_sharded(parameter):
        return gradient
    return gradient.redistribute(parameter.device_mesh, parameter.placements)


def replicas(tensor: Tensor, world: int) -> int:
    """How many ranks hold the same entries of a tensor."""
    if not is_sharded(tensor):
        return world
    mesh = tensor.device_mesh  # not `is_shard()`: FSDP's strided shards are another class
    sizes = [int(mesh.size(k)) for k, p in enumerate(tensor.placements) if not p.is_replicate()]
    return world // math.prod(sizes)


def shard_of(values: Tensor, parameter: DTensor) -> Tensor:
    """A DTensor like a parameter, from values that all ranks have; without communication.

    Args:
        values: All entries, the same on every rank.
        parameter: A DTensor of the same shape.
    """
    from torch.distributed.tensor import DTensor  # slow to import, and rarely needed

    mesh, own = parameter.device_mesh, values
    for k in _order(parameter.placements):
        placement = parameter.placements[k]
        if not placement.is_replicate():
            dim = cast("Shard", placement).dim  # FSDP's strided shards are another class
            parts = own.tensor_split(_edges(own.shape[dim], mesh.size(k)), dim)
            own = parts[mesh.get_local_rank(k)]
    made = own.to(device=local(parameter).device, dtype=parameter.dtype).contiguous()
    return DTensor.from_local(
        made,
        mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _order(placements: Sequence[Placement]) -> list[int]:
    """The dimensions of a mesh in the order in which a tensor is cut.

    FSDP cuts the shards of tensor parallelism, which is marked by strided shards.
    """
    strided = [k for k, p in enumerate(placements) if hasattr(p, "split_factor")]
    return [k for k in range(len(placements)) if k not in strided] + strided[::-1]


def _edges(length: int, parts: int) -> list[int]:
    """Where a dimension is cut: equal parts, the last ones shorter or empty."""
    each = -(-length // parts)
    return [min(each * k, length) for k in range(1, parts)]


def fully_sharded(tensors: Iterable[Tensor], world: int) -> bool:
    """Whether every tensor is sharded over one mesh of all ranks."""
    return all(
        is_sharded(t) and t.device_mesh.ndim == 1 and t.device_mesh.size() == world for t in tensors
    )
