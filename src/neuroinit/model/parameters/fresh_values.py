"""How fresh values of a tensor are drawn; the same values on every device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.common.checks import check_choice, check_count, check_number
from neuroinit.distributed.dtensor import is_sharded, shard_of

CUT = 2.0  # standard deviations at which the normal distribution is truncated


@dataclass(frozen=True)
class Draw:
    """How the values of a tensor are drawn.

    Args:
        kind: ``"normal"``, ``"trunc_normal"``, ``"uniform"``, ``"orthogonal"`` or ``"constant"``.
        size: The standard deviation (of the normal before it is truncated), the bound of the
            uniform values, the gain of the orthogonal matrix, or the constant.
        seed: Seed of the random numbers.
        blocks: Number of matrices that the tensor holds along dimension 0, such as gates, or query,
            key and value. They are drawn separately.
        zero_row: Index of a row that is set to zero: the padding token of an embedding.

    Example:
        >>> matrix = Draw("orthogonal", 1.0, seed=3).like(torch.empty(2, 2))
        >>> torch.allclose(matrix @ matrix.T, torch.eye(2))
        True
    """

    kind: str
    size: float
    seed: int = 0
    blocks: int = 1
    zero_row: int | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, tuple(_KINDS))
        check_number("size", self.size, -math.inf)
        check_count("seed", self.seed, 0)
        check_count("blocks", self.blocks, 1)
        if self.zero_row is not None:
            check_count("zero_row", self.zero_row, 0)

    def like(self, tensor: Tensor) -> Tensor:
        """Draw a tensor with the shape, dtype and device of the given tensor.

        For a DTensor, every rank draws all entries and keeps its shard: the values do not depend on
        the number of ranks, and there is no communication.
        """
        generator = torch.Generator().manual_seed(self.seed)
        matrices = torch.empty(tensor.shape, device="meta").chunk(self.blocks)
        parts = [self.size * _KINDS[self.kind](matrix.shape, generator) for matrix in matrices]
        filled = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.zero_row is not None:
            filled[self.zero_row] = 0
        return shard_of(filled, tensor) if is_sharded(tensor) else filled.to(tensor)


def _normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def _unit(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")


def _uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return 2 * _unit(shape, generator) - 1


def _trunc_normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Truncated at ``CUT``, by the inverse error function of uniform values."""
    edge = math.erf(CUT / math.sqrt(2))
    return math.sqrt(2) * torch.erfinv(edge * _uniform(shape, generator))


def _orthogonal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, uniformly distributed (Saxe et al.)."""
    rows, columns = shape[0], math.prod(shape[1:])
    tall = _normal(torch.Size([max(rows, columns), min(rows, columns)]), generator)
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    matrix: Tensor = q if rows >= columns else q.T
    return matrix.reshape(shape)


def _ones(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.ones(shape, dtype=torch.float64, device="cpu")


_KINDS: dict[str, Callable[[torch.Size, torch.Generator], Tensor]] = {
    "normal": _normal,
    "trunc_normal": _trunc_normal,
    "uniform": _uniform,
    "orthogonal": _orthogonal,
    "constant": _ones,
}
