"""What the replaced layers need to know about the pass that they are part of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Slices = list[slice] | None
Saved = tuple[Tensor, ...]


class NotSeparableError(Exception):
    """One pass over several pieces of a batch cannot keep the gradients of the pieces apart."""


@dataclass(frozen=True)
class PieceParameters:
    """For one pass over several pieces of a batch: leaves whose gradients are those of the pieces.

    Args:
        intervals: The pieces as ``(start, stop)``, consecutive, from 0 to the size of the batch.
        leaves: Parameter id -> leaf of shape ``(pieces, *parameter.shape)``. Entry ``s`` of its
            gradient is the gradient of piece ``s``.
        derived: Tensor id -> ``(tensor, leaf)`` for tensors computed from one parameter, such as
            views.
    """

    intervals: tuple[tuple[int, int], ...]
    leaves: dict[int, Tensor]
    derived: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def slices(self, x: Tensor) -> list[slice]:
        """The slice of every piece in an activation with a fixed number of rows a sample."""
        each, rest = divmod(len(x), self.intervals[-1][1]) if x.dim() > 1 else (0, 1)
        if rest or not each:
            raise NotSeparableError
        return [slice(start * each, stop * each) for start, stop in self.intervals]

    def leaf(self, parameter: Tensor | None) -> Tensor | None:
        """The leaf of a parameter, ``None`` if it needs no gradient."""
        if parameter is None or not parameter.requires_grad:
            return None
        if not parameter.is_leaf:
            raise NotSeparableError
        return self.leaves.get(id(parameter))


@dataclass
class KernelContext:
    """State shared by the replaced layers of one session.

    Args:
        scales: Weight id -> scalar tensor equal to one that multiplies the weight. The derivative
            by a scale is taken by this tensor, see ``products.py``.
        second_backward: Whether the backward pass under way is the second one.
        pieces: Set for one pass over several pieces of a batch.
    """

    scales: dict[int, Tensor] = field(default_factory=dict)
    second_backward: bool = False
    pieces: PieceParameters | None = None

    def __bool__(self) -> bool:
        return bool(self.scales) or self.pieces is not None


def by_slice(function: Callable[..., Tensor], slices: Slices, *args: Tensor) -> Tensor:
    """``function(*args)``; with slices, the stacked results of every slice of the arguments."""
    if slices is None:
        return function(*args)
    return torch.stack([function(*(a[s] for a in args)) for s in slices])


def without_function_mode(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run a backward whose own operators are not replaced by :class:`ReplacedLayers`.

    Saved tensors are read outside, because reading them may run a checkpointed part of the model
    again, where layers have to be replaced.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *gradients: Any) -> Any:
        saved = ctx.saved_tensors
        with torch._C.DisableTorchFunction():
            return backward(ctx, saved, *gradients)

    return wrapped
