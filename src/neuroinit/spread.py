"""Parameters that are added to activations or multiply them, with a gradient for every piece.

``x + p`` is computed as ``x + q``, where ``q`` has ``p`` once for every row of ``x``, without a
copy. What comes back for ``q`` is summed piece by piece.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.marks import Marks, Rows, Slices, by_slice

FUNCTIONS = {"add", "add_", "sub", "mul", "mul_", "expand"}


def spread(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], marks: Marks) -> Any:
    """A call of ``x + p``, ``x * p`` or ``p.expand``; ``None`` where it is no such."""
    name, rows = getattr(func, "__name__", ""), marks.rows
    if rows is None or name not in FUNCTIONS:
        return None
    known = [isinstance(a, Tensor) and id(a) in rows.of for a in args]
    if sum(known) != 1:
        return None
    place = known.index(True)
    p = args[place]
    if name == "expand":
        sizes = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        return _expanded(p, tuple(sizes), marks, rows)
    x = args[1 - place] if len(args) == 2 else None
    if not isinstance(x, Tensor) or not _broadcasts(p, x):
        return None
    q = _rows(p, x, marks, rows)
    return func(*((q, x) if place == 0 else (x, q)), **kwargs)


def _broadcasts(p: Tensor, x: Tensor) -> bool:
    return p.dim() < x.dim() or (p.dim() == x.dim() > 1 and p.shape[0] == 1)


def _expanded(p: Tensor, sizes: tuple[int, ...], marks: Marks, rows: Rows) -> Tensor | None:
    """One copy of a parameter for every sample, as of a class token."""
    if p.dim() < 2 or len(sizes) != p.dim() or p.shape[0] != 1:
        return None
    x = p.detach().expand(sizes)
    return _rows(p, x, marks, rows).expand(x.shape)


def _rows(p: Tensor, x: Tensor, marks: Marks, rows: Rows) -> Tensor:
    """``p`` once for every row of ``x``, in a form that broadcasts against it."""
    own = p.shape[1:] if p.dim() == x.dim() else p.shape
    shape = (len(x), *([1] * (x.dim() - 1 - len(own))), *own)
    found: Tensor = _Rows.apply(p, rows.row(p), shape, marks, rows.slices(x))  # type: ignore[no-untyped-call]
    return found


class _Rows(torch.autograd.Function):
    """Copies of a parameter without a copy; the gradient by piece the first time, then the sum."""

    @staticmethod
    def forward(
        ctx: Any, p: Tensor, row: Tensor, shape: tuple[int, ...], marks: Marks, slices: Slices
    ) -> Tensor:
        ctx.shape, ctx.marks, ctx.slices = p.shape, marks, slices
        return p.reshape(shape[1:]).expand(shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.marks.second:
            return g.sum(0).reshape(ctx.shape), None, None, None, None
        return (
            None,
            by_slice(lambda g: g.sum(0).reshape(ctx.shape), ctx.slices, g),
            None,
            None,
            None,
        )
