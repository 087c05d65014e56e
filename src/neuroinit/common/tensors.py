"""Gradients as flat vectors: one tensor for all parameters, sums in float64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
CHUNK = 2**16  # entries that are converted to float64 at once


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of the tensors in one detached vector, on the device of the first."""
    device = tensors[0].device
    return torch.cat([t.detach().reshape(-1).to(device) for t in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Split a vector into parts with the shapes, dtypes and devices of other tensors."""
    parts = torch.split(vector, [t.numel() for t in like])
    return [part.view(t.shape).to(t) for part, t in zip(parts, like, strict=True)]


def zeros_if_missing(found: Iterable[Tensor | None], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients that autograd found, with zeros in place of ``None``."""
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(found, like, strict=True))


def weighted_sum(weights: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    """``sum_s weights[s] * vectors[s]``."""
    used = [(float(w), v) for w, v in zip(weights, vectors, strict=True) if w != 0]
    if len(used) == 1 and used[0][0] == 1.0:
        return used[0][1]
    return torch.stack([w * v for w, v in used]).sum(0)


def accumulate(weights: Tensor, direction: Tensor, directions: list[Tensor]) -> None:
    """``directions[s] += weights[s] * direction``, in place."""
    for s in weights.nonzero().flatten().tolist():
        directions[s] += float(weights[s]) * direction


def dot(a: Any, b: Any) -> Tensor:
    """The inner product of two tensors of one shape."""
    product: Tensor = (a * b).sum(dtype=sum_dtype(a))
    return product


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype for sums over a tensor: float64, or float32 on devices without float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def to_cpu_double(tensor: Tensor) -> Tensor:
    """A detached float64 copy on the CPU, for small tensors."""
    return tensor.detach().cpu().double()


WORDS = 2**22  # eight-byte words that are hashed at once


def fingerprint(tensor: Tensor) -> int:
    """A hash of a tensor's bits in ``[0, 2^63)``, the same on every device."""
    data = tensor.detach().reshape(-1).contiguous()
    if not data.numel():
        return 0
    octets = data.view(torch.uint8)
    octets = torch.cat([octets, octets.new_zeros(-len(octets) % 8)])
    total = 0
    for k, words in enumerate(torch.split(octets.view(torch.int64), WORDS)):
        place = torch.arange(len(words), device=words.device) + k * WORDS
        mixed = (words ^ (words >> 29)) * (place * 2862933555777941757 + 3037000493)
        total += int((mixed ^ (mixed >> 32)).sum())
    return total % 2**63


def gram_matrix(rows: Sequence[Tensor], columns: Sequence[Tensor] | None = None) -> Tensor:
    """``K[i, j] = <rows_i, columns_j>``, float64 on the CPU; by default of the rows themselves."""
    columns = rows if columns is None else columns
    total = torch.zeros(len(rows), len(columns), dtype=sum_dtype(rows[0]), device=rows[0].device)
    for start in range(0, rows[0].numel(), CHUNK):
        a = torch.stack([v[start : start + CHUNK] for v in rows]).to(total.dtype)
        same = columns is rows
        b = a if same else torch.stack([v[start : start + CHUNK] for v in columns]).to(total.dtype)
        total += a @ b.T
    return to_cpu_double(total)


def at_least_float32(tensor: Tensor) -> Tensor:
    """A tensor in half precision as float32; others as they are."""
    return tensor.float() if tensor.dtype in HALF else tensor
