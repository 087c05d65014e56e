"""Gradients as flat vectors: one tensor for all parameters, sums in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of the tensors in one vector, without their graph."""
    device = tensors[0].device
    return torch.cat([t.detach().reshape(-1).to(device) for t in tensors])


def slices(vector: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    """Consecutive parts of a vector, as views."""
    return torch.split(vector, sizes)


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a vector in the shapes, dtypes and devices of other tensors."""
    parts = slices(vector, [t.numel() for t in like])
    return [part.view(t.shape).to(t) for part, t in zip(parts, like, strict=True)]


def combine(weights: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    """``sum_s weights[s] * vectors[s]``."""
    used = [(float(w), v) for w, v in zip(weights, vectors, strict=True) if w != 0]
    if len(used) == 1 and used[0][0] == 1.0:
        return used[0][1]
    return torch.stack([w * v for w, v in used]).sum(0)


def spread(weights: Tensor, direction: Tensor, directions: list[Tensor]) -> None:
    """``directions[s] += weights[s] * direction``, in place."""
    for s in weights.nonzero().flatten().tolist():
        directions[s] += float(weights[s]) * direction


def dot(a: Any, b: Any) -> Tensor:
    """The inner product of two tensors of one shape."""
    product: Tensor = (a * b).sum(dtype=wide(a))
    return product


def wide(tensor: Tensor) -> torch.dtype:
    """Sums are taken in float64 wherever the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def narrow(tensor: Tensor) -> Tensor:
    """A small tensor for bookkeeping: float64 on the CPU, without a graph."""
    return tensor.detach().cpu().double()


def gram_matrix(gradients: Sequence[Tensor]) -> Tensor:
    """``K``, float64 on the CPU, from unit vectors so that no product overflows."""
    norms = narrow(torch.stack([torch.linalg.vector_norm(g, dtype=wide(g)) for g in gradients]))
    safe = torch.where(norms == 0, torch.ones_like(norms), norms)
    units = [g / float(n) for g, n in zip(gradients, safe, strict=True)]
    pairs = [[dot(a, b) for b in units[i:]] for i, a in enumerate(units)]
    upper = torch.zeros(len(units), len(units), dtype=torch.float64, device="cpu")
    for i, row in enumerate(pairs):
        upper[i, i:] = narrow(torch.stack(row))
    return (upper + upper.triu(1).T) * norms[:, None] * norms[None, :]
