"""What the replaced layers are told: marks of weights, and the pieces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Slices = list[slice] | None
Saved = tuple[Tensor, ...]


class NotByPieceError(Exception):
    """One pass over several pieces cannot tell the gradients of the pieces apart."""


@dataclass(frozen=True)
class Rows:
    """For one pass over several pieces of a batch: a gradient for each of them.

    Args:
        pieces: Where they are, one after the other, from 0 to the size of the batch.
        of: By a parameter's id, a leaf with one row a piece, whose gradient is that of the pieces.
        made: By the id of a tensor that was made of one parameter, that tensor and its rows.
    """

    pieces: tuple[tuple[int, int], ...]
    of: dict[int, Tensor]
    made: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def slices(self, x: Tensor) -> list[slice]:
        """Where the pieces are in an activation, which has a few rows for every sample."""
        each, rest = divmod(len(x), self.pieces[-1][1]) if x.dim() > 1 else (0, 1)
        if rest or not each:
            raise NotByPieceError
        return [slice(start * each, stop * each) for start, stop in self.pieces]

    def row(self, parameter: Tensor | None) -> Tensor | None:
        """The leaf of a parameter; a tensor made from parameters has none."""
        if parameter is None or not parameter.requires_grad:
            return None
        if not parameter.is_leaf:
            raise NotByPieceError
        return self.of.get(id(parameter))


@dataclass
class Marks:
    """The marks of weights by the weight's id, and which backward is under way."""

    of: dict[int, Tensor] = field(default_factory=dict)
    second: bool = False
    rows: Rows | None = None

    def __bool__(self) -> bool:
        return bool(self.of) or self.rows is not None


def by_slice(function: Callable[..., Tensor], slices: Slices, *args: Tensor) -> Tensor:
    """A function of activations; with slices, of each slice, stacked."""
    if slices is None:
        return function(*args)
    return torch.stack([function(*(a[s] for a in args)) for s in slices])


def unwatched(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose own operators are not looked at, as those of the model are.

    What was saved is handed over: to fetch it may run a checkpointed part of the model again.
    """

    @functools.wraps(backward)
    def quiet(ctx: Any, *gradients: Any) -> Any:
        saved = ctx.saved_tensors
        with torch._C.DisableTorchFunction():
            return backward(ctx, saved, *gradients)

    return quiet
