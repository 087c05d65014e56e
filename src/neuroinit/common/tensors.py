"""Gradients as flat vectors: norms, inner products and Gram matrices, summed in float64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
CHUNK = 2**16  # entries of a vector that are converted to float64 at a time
BLOCK = 2**10  # entries in a block whose squares are summed in float32
PRODUCT = 2**9  # entries in a block whose products are summed in float32
GROUP = 2**18  # entries of tensors of equal size that are converted together
LARGE_CHUNK = 2**20  # CHUNK on an accelerator, where every operator costs a launch


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of the tensors in one detached vector, on the device of the first."""
    device = tensors[0].device
    return torch.cat([t.detach().reshape(-1).to(device) for t in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Split a vector into parts with the shapes, dtypes and devices of other tensors."""
    parts = torch.split(vector, [t.numel() for t in like])
    return [part.view(t.shape).to(t) for part, t in zip(parts, like, strict=True)]


def zeros_if_missing(found: Iterable[Tensor | None], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of autograd as dense tensors, with zeros in place of ``None``."""
    return tuple(
        torch.zeros_like(t) if g is None else g.to_dense() if g.is_sparse else g
        for g, t in zip(found, like, strict=True)
    )


def weighted_rows(weights: Tensor, rows: Tensor) -> Tensor:
    """``weights @ rows`` for weights on the CPU and rows of any dtype on any device."""
    return weights.to(rows) @ rows


def row_norms(rows: Tensor) -> Tensor:
    """The norm of every row in float64, on the device of the rows.

    On a CPU, float32 entries are summed in blocks. This is 20 times as fast as ``vector_norm`` with
    a float64 result, and its error is that of the entries. If squares are out of the range of
    float32, the matrix is converted in parts that fit into the cache: nine times as fast as whole.
    """
    if rows.device.type != "cpu" or rows.dtype == torch.float64:
        return _norms(rows, sum_dtype(rows))
    if rows.dtype == torch.float32:
        whole = rows.shape[1] // BLOCK * BLOCK
        parts = [_norms(rows[:, whole:])[:, None]]
        if whole:
            blocks = rows[:, :whole].view(len(rows), -1, BLOCK)
            parts.append(torch.linalg.vector_norm(blocks, dim=2))
        found = _norms(torch.cat(parts, 1).double())
        if bool(((found > 1e-12) & (found < 1e18)).all()):
            return found
    total = torch.zeros(len(rows), dtype=torch.float64, device="cpu")
    for part in torch.split(rows, CHUNK, 1):
        total += part.double().square_().sum(1)
    return total.sqrt()


def _norms(rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=dtype)
    return found


def quick_norms(tensors: Sequence[Tensor]) -> list[float]:
    """The norms of tensors in their own precision, in few operators and one wait for the device.

    Very large and very small entries overflow to ``inf`` and to 0. ``nan`` for whole numbers.
    """
    real = [k for k, t in enumerate(tensors) if t.is_floating_point() or t.is_complex()]
    found = torch._foreach_norm([tensors[k] for k in real]) if real else []
    alike = [norm.detach().to(found[0].device) for norm in found]
    known = dict(zip(real, torch.stack(alike).cpu().tolist() if alike else [], strict=True))
    return [known.get(k, math.nan) for k in range(len(tensors))]


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of two tensors of one shape."""
    product: Tensor = (a * b).sum(dtype=sum_dtype(a))
    return product


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype for sums over a tensor: float64, or float32 on devices without float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def to_cpu_double(tensor: Tensor) -> Tensor:
    """A detached float64 copy on the CPU, for small tensors."""
    return tensor.detach().cpu().double()


def to_host(*tensors: Tensor) -> list[Tensor]:
    """Float64 copies of small tensors on the CPU, with one synchronization with the device."""
    alike = [t.detach().reshape(-1).to(tensors[0].device) for t in tensors]
    joined = torch.cat(alike)  # in the widest dtype
    parts = torch.split(to_cpu_double(joined), [t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


WORDS = 2**22  # eight-byte words that are hashed at a time


def fingerprint(tensor: Tensor) -> int:
    """A hash of a tensor's bits in ``[0, 2^63)``, the same on every device."""
    total = 0
    for k, words in enumerate(torch.split(torch.cat(_octets(tensor)).view(torch.int64), WORDS)):
        places = torch.arange(len(words), device=words.device) + k * WORDS
        total += int(_mixed(words, _factors(places)).sum())
    return total % 2**63


def fingerprints(tensors: Sequence[Tensor]) -> list[int]:
    """:func:`fingerprint` of every tensor, in few operators for small ones of a few lengths."""
    device = tensors[0].device
    octets = [_octets(t.to(device)) for t in tensors]
    lengths = [sum(part.numel() for part in own) // 8 for own in octets]
    factors = _factors(torch.arange(max(lengths), device=device))
    places: list[int] = []
    sums: list[Tensor] = []
    for length in set(lengths):
        alike = [k for k, own in enumerate(lengths) if own == length]
        words = torch.cat([part for k in alike for part in octets[k]]).view(torch.int64)
        places += alike
        sums.append(_mixed(words.view(len(alike), length), factors[:length]).sum(1))
    found = dict(zip(places, torch.cat(sums).cpu().tolist(), strict=True))
    return [found[k] % 2**63 for k in range(len(tensors))]


def _octets(tensor: Tensor) -> list[Tensor]:
    """The bytes of a tensor, and zeros up to a multiple of eight."""
    data = tensor.detach().reshape(-1).contiguous().view(torch.uint8)
    missing = -data.numel() % 8
    return [data, data.new_zeros(missing)] if missing else [data]


def _factors(places: Tensor) -> Tensor:
    return places * 2862933555777941757 + 3037000493


def _mixed(words: Tensor, factors: Tensor) -> Tensor:
    mixed = (words >> 29).bitwise_xor_(words).mul_(factors)
    return mixed.bitwise_xor_(mixed >> 32)


def gram_matrix(rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """``K[i, j] = <rows_i, columns_j>`` in float64, on the device of the rows.

    Args:
        rows: Vectors, of shape ``(m, entries)``.
        columns: Vectors of shape ``(n, entries)``; by default the rows.
    """
    if columns is None and rows.dtype == torch.float32 and rows.device.type == "cpu":
        found = _gram_in_blocks(rows) if rows.shape[1] >= CHUNK else None
        if found is not None:
            return found
    dtype, chunk = sum_dtype(rows), CHUNK if rows.device.type == "cpu" else LARGE_CHUNK
    if rows.dtype == dtype and 0 < rows.shape[1] <= chunk:
        return rows @ (rows if columns is None else columns.to(dtype)).T
    others = None if columns is None else torch.split(columns, chunk, 1)
    total = None
    for k, part in enumerate(torch.split(rows, chunk, 1)):
        a = part.to(dtype)
        product = a @ (a if others is None else others[k].to(dtype)).T
        total = product if total is None else total.add_(product)
    return rows.new_zeros(len(rows), len(rows), dtype=dtype) if total is None else total


def _gram_in_blocks(rows: Tensor) -> Tensor | None:
    """``rows rows^T``, in float32 inside blocks, which are summed in float64.

    Its error is about 1e-8 of the norms' product. For 16 vectors of 3.4 million entries it takes 40
    ms, where a conversion to float64 takes 268. ``None`` if squares may be out of float32's range.
    """
    whole = rows.shape[1] // PRODUCT * PRODUCT
    rest = rows[:, whole:].double()
    total = rest @ rest.T
    for part in torch.split(rows[:, :whole], CHUNK, 1):
        blocks = part.view(len(part), -1, PRODUCT).transpose(0, 1)
        total += torch.bmm(blocks, blocks.transpose(1, 2)).sum(0, dtype=torch.float64)
    squares = total.diagonal()
    return total if bool(((squares > 1e-24) & (squares < 1e36)).all()) else None


def tensor_grams(rows: Tensor, sizes: list[int], columns: Tensor | None = None) -> Tensor:
    """The Gram matrix of every tensor's part of flat vectors, shape ``(tensors, m, n)``.

    Args:
        rows: Vectors, of shape ``(m, entries)``.
        sizes: Number of entries of every tensor.
        columns: Vectors of shape ``(n, entries)``; by default the rows.
    """
    parts = torch.split(rows, sizes, 1)
    return grams_of_tensors(parts, None if columns is None else torch.split(columns, sizes, 1))


def grams_of_tensors(left: Sequence[Tensor], right: Sequence[Tensor] | None = None) -> Tensor:
    """As :func:`tensor_grams`, from one matrix of gradients ``(m, entries)`` a tensor."""
    right = left if right is None else right
    sizes = [part.shape[1] for part in left]
    found: dict[int, Tensor] = {}
    for size in set(sizes):
        alike = [k for k, own in enumerate(sizes) if own == size]
        most = max(1, GROUP // max(1, size * len(left[0])))
        for group in (alike[i : i + most] for i in range(0, len(alike), most)):
            found |= zip(group, _equal_grams([(left[k], right[k]) for k in group]), strict=True)
    return torch.stack([found[k] for k in range(len(sizes))])


def total_gram(gradients: Sequence[Tensor]) -> Tensor:
    """The Gram matrix of whole gradients, from one matrix ``(m, entries)`` for every tensor."""
    large = [own for own in gradients if own.shape[1] >= CHUNK]
    small = [own for own in gradients if own.shape[1] < CHUNK]
    parts = [*large, torch.cat(small, 1)] if small else large
    return torch.stack([gram_matrix(own) for own in parts]).sum(0)


def _equal_grams(pairs: list[tuple[Tensor, Tensor]]) -> Iterable[Tensor]:
    """The Gram matrices of tensors of one size, in one product for all."""
    (a, b), *others = pairs
    if not others:
        return [gram_matrix(a, None if a is b else b)]
    rows = torch.stack([p for p, _ in pairs]).to(sum_dtype(a))
    columns = rows if a is b else torch.stack([q for _, q in pairs]).to(rows)
    return (rows @ columns.transpose(1, 2)).unbind()


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert half precision to float32; other tensors are returned unchanged."""
    return tensor.float() if tensor.dtype in HALF else tensor
