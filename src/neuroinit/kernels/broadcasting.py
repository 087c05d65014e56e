"""Parameters that are added to activations or multiply them, with a gradient for every piece.

``x + p`` is computed as ``x + q``, where ``q`` has ``p`` once for every row of ``x``, without a
copy. What comes back for ``q`` is summed piece by piece. ``p`` may be a part or another view of a
parameter, as the table of relative positions in a Swin transformer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.context import (
    KernelContext,
    PieceParameters,
    Saved,
    Slices,
    by_slice,
    without_function_mode,
)

ELEMENTWISE = {"add", "add_", "sub", "mul", "mul_"}
VIEWS = {
    "__getitem__",
    "view",
    "reshape",
    "permute",
    "transpose",
    "contiguous",
    "squeeze",
    "unsqueeze",
}
SPREAD = ELEMENTWISE | VIEWS | {"expand"}


def spread(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext) -> Any:
    """A call of ``x + p``, ``x * p``, ``p.expand`` or a view; ``None`` where it is no such."""
    name, pieces = getattr(func, "__name__", ""), context.pieces
    if pieces is None or name not in SPREAD:
        return None
    known = [
        isinstance(a, Tensor) and (id(a) in pieces.leaves or id(a) in pieces.derived) for a in args
    ]
    if sum(known) != 1:
        return None
    place = known.index(True)
    p = args[place]
    if name == "expand":
        sizes = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        return _expanded(p, tuple(sizes), context, pieces)
    if name in VIEWS:
        return _viewed(func, p, args[1:], kwargs, pieces) if place == 0 else None
    x = args[1 - place] if len(args) == 2 else None
    if not isinstance(x, Tensor) or not _broadcasts(p, x):
        return None
    q = _repeated(p, x, context, pieces)
    return func(*((q, x) if place == 0 else (x, q)), **kwargs)


def _viewed(
    func: Any, p: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: PieceParameters
) -> Tensor:
    """The same of a parameter and of its pieces."""
    made: Tensor = func(p, *args, **kwargs)
    if made is not p:
        leaf = torch.vmap(lambda p: func(p, *args, **kwargs))(_leaf(p, pieces))
        pieces.derived[id(made)] = made, leaf
    return made


def _leaf(p: Tensor, pieces: PieceParameters) -> Tensor:
    return pieces.leaves[id(p)] if id(p) in pieces.leaves else pieces.derived[id(p)][1]


def _broadcasts(p: Tensor, x: Tensor) -> bool:
    return p.dim() < x.dim() or (p.dim() == x.dim() > 1 and p.shape[0] == 1)


def _expanded(
    p: Tensor, sizes: tuple[int, ...], context: KernelContext, pieces: PieceParameters
) -> Tensor | None:
    """One copy of a parameter for every sample, as of a class token."""
    if p.dim() < 2 or len(sizes) != p.dim() or p.shape[0] != 1:
        return None
    x = p.detach().expand(sizes)
    return _repeated(p, x, context, pieces).expand(x.shape)


def _repeated(p: Tensor, x: Tensor, context: KernelContext, pieces: PieceParameters) -> Tensor:
    """``p`` once for every row of ``x``, in a form that broadcasts against it."""
    own = p.shape[1:] if p.dim() == x.dim() else p.shape
    shape = (len(x), *([1] * (x.dim() - 1 - len(own))), *own)
    found: Tensor = _Repeat.apply(p, _leaf(p, pieces), shape, context, pieces.slices(x))  # type: ignore[no-untyped-call]
    return found


class _Repeat(torch.autograd.Function):
    """Copies of a parameter without a copy; the gradient by piece the first time, then the sum."""

    @staticmethod
    def forward(
        ctx: Any,
        p: Tensor,
        leaf: Tensor,
        shape: tuple[int, ...],
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        ctx.shape, ctx.context, ctx.slices = p.shape, context, slices
        return p.reshape(shape[1:]).expand(shape)

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.context.second_backward:
            return g.sum(0).reshape(ctx.shape), None, None, None, None
        by_piece = by_slice(lambda g: g.sum(0).reshape(ctx.shape), ctx.slices, g)
        return None, by_piece, None, None, None
