"""Parameters that are added to activations or multiply them, with a gradient for every piece.

For an activation ``x`` of shape ``(rows, ...)`` and a parameter ``p`` that broadcasts against it,
``x + p`` is computed as ``x + q``, where ``q[i] = p`` for every row ``i``, without a copy. The
gradient by ``q`` has a row for every row of ``x``; its sum over the rows of a piece is the gradient
of the piece by ``p``. ``p`` may be a part or another view of a parameter, such as the table of
relative positions in a Swin transformer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.batched import row_sums
from neuroinit.kernels.context import (
    KernelContext,
    PieceParameters,
    Saved,
    Slices,
    transforms_active,
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
BROADCASTING = ELEMENTWISE | VIEWS | {"expand"}


def broadcast_parameter(
    func: Callable[..., Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context: KernelContext,
) -> Tensor | None:
    """The result of ``x + p``, ``x - p``, ``x * p``, ``p.expand(...)`` or of a view of ``p``.

    ``p`` is one parameter with a leaf, or was computed from one. ``None`` for all other calls.

    Args:
        func: torch's function, of a name in ``BROADCASTING``.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        context: The pieces.
    """
    name, pieces = getattr(func, "__name__", ""), context.pieces
    if pieces is None or name not in BROADCASTING or transforms_active():
        return None
    known = [isinstance(a, Tensor) and pieces.known_leaf(a) is not None for a in args]
    if sum(known) != 1:
        return None
    position = known.index(True)
    p = args[position]
    if name == "expand":
        sizes = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        return _expand(p, tuple(sizes), context, pieces)
    if name in VIEWS:
        return _view(func, p, args[1:], kwargs, pieces) if position == 0 else None
    x = args[1 - position] if len(args) == 2 else None
    if not isinstance(x, Tensor) or not _broadcasts(p, x):
        return None
    q = _repeat(p, x, context, pieces)
    return func(*((q, x) if position == 0 else (x, q)), **kwargs)


def _view(
    func: Callable[..., Tensor],
    p: Tensor,
    args: tuple[object, ...],
    kwargs: dict[str, Any],
    pieces: PieceParameters,
) -> Tensor:
    """``func(p)``; its leaf is the same view of every entry of the leaf of ``p``."""
    view = func(p, *args, **kwargs)
    if view is not p:
        leaf = torch.vmap(lambda p: func(p, *args, **kwargs))(pieces.known_leaf(p))
        pieces.derived[id(view)] = view, leaf
    return view


def _broadcasts(p: Tensor, x: Tensor) -> bool:
    """Whether ``p`` is the same for all rows of ``x``."""
    return p.dim() < x.dim() or (p.dim() == x.dim() > 1 and p.shape[0] == 1)


def _expand(
    p: Tensor, sizes: tuple[int, ...], context: KernelContext, pieces: PieceParameters
) -> Tensor | None:
    """``p.expand(samples, ...)`` for ``p`` of shape ``(1, ...)``, such as a class token."""
    if p.dim() < 2 or len(sizes) != p.dim() or p.shape[0] != 1:
        return None
    x = p.detach().expand(sizes)
    return _repeat(p, x, context, pieces).expand(x.shape)


def _repeat(p: Tensor, x: Tensor, context: KernelContext, pieces: PieceParameters) -> Tensor:
    """``p`` once for every row of ``x``, of shape ``(rows, 1, ..., 1, *shape of p)``."""
    own = p.shape[1:] if p.dim() == x.dim() else p.shape
    shape = (len(x), *[1] * (x.dim() - 1 - len(own)), *own)
    settings = pieces.known_leaf(p), shape, context, pieces.slices(x)
    found: Tensor = _RepeatRows.apply(p, *settings)  # type: ignore[no-untyped-call]
    return found


def repeat_for_pieces(p: Tensor, context: KernelContext, pieces: PieceParameters) -> Tensor:
    """``p`` once for every piece, of shape ``(pieces, *shape of p)``."""
    leaf, shape = pieces.known_leaf(p), (len(pieces.intervals), *p.shape)
    if leaf is None:
        return p.expand(shape)
    found: Tensor = _RepeatRows.apply(p, leaf, shape, context, None)  # type: ignore[no-untyped-call]
    return found


class _RepeatRows(torch.autograd.Function):
    """``q[i] = p`` for every row, without a copy.

    The gradient is the sum over rows; in the first backward the sums over the rows of every piece,
    by the leaf of ``p``. Without slices a row is a piece.
    """

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
        if ctx.context.first_backward:
            own = g if ctx.slices is None else row_sums(g, ctx.slices)
            return None, own.reshape(len(own), *ctx.shape), None, None, None
        return g.sum(0).reshape(ctx.shape), None, None, None, None
