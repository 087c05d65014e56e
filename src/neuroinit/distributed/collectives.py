"""Collective operations on the default process group; a lost process raises LostRankError."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from neuroinit.common.errors import LostRankError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@contextmanager
def contact() -> Iterator[None]:
    """A context in which torch's errors of lost processes become a LostRankError."""
    try:
        yield
    except RuntimeError as error:
        raise LostRankError(
            "Lost contact with another rank: it was killed, or it exited. See its own output. "
            f"torch says: {error}"
        ) from error


def maximum(values: list[int]) -> list[int]:
    """The largest value over all ranks, for each entry."""
    found = torch.tensor(values, dtype=torch.int64, device=_device())
    with contact():
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return [int(value) for value in found.tolist()]


def summed(tensor: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """The sum over the ranks of a group, by default all; bit-identical on each rank."""
    total = tensor.detach().to(_device(tensor), copy=True).contiguous()
    with contact():
        dist.all_reduce(total, group=group)
    return total.to(tensor.device)


def gathered(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """The tensor of every rank.

    Args:
        tensor: The tensor of this rank.
        sizes: The length of dimension 0 on every rank. Backends need tensors of one shape, so
            tensors are padded.
    """
    own = tensor.detach().to(_device(tensor))
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in sizes]
    with contact():
        dist.all_gather(parts, padded)
    return [part[:size].to(tensor.device) for part, size in zip(parts, sizes, strict=True)]


def gathered_texts(text: str, world: int) -> list[str]:
    """The text of every rank."""
    own = torch.tensor(bytearray(text.encode()), dtype=torch.uint8, device=_device())
    lengths = gathered(torch.tensor([len(own)], device=own.device), [1] * world)
    parts = gathered(own, torch.cat(lengths).tolist())
    return [bytes(part.tolist()).decode() for part in parts]


def new_groups(blocks: Sequence[Sequence[int]]) -> list[ProcessGroup]:
    """A process group for every block of ranks; all ranks have to call this."""
    with contact():
        return [dist.new_group(list(block)) for block in blocks]


def _device(tensor: Tensor | None = None) -> torch.device:
    """The device on which the backend needs its tensors."""
    if "nccl" not in dist.get_backend() or "gloo" in dist.get_backend():
        return torch.device("cpu") if tensor is None else tensor.device
    if tensor is not None and tensor.is_cuda:
        return tensor.device
    return torch.device("cuda", torch.cuda.current_device())
