"""Parameters that are added to activations or multiply them, with a gradient for every piece.

``x + p`` is computed as ``x + q``, where ``q`` has ``p`` once for every row of ``x``, without a
copy. What comes back for ``q`` is summed piece by piece. ``p`` may be a part or another view of a
parameter, as the table of relative positions in a Swin transformer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.kernels.context import Marks, Rows, Saved, Slices, by_slice, unwatched

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


def spread(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], marks: Marks) -> Any:
    """A call of ``x + p``, ``x * p``, ``p.expand`` or a view; ``None`` where it is no such."""
    name, rows = getattr(func, "__name__", ""), marks.rows
    if rows is None or name not in SPREAD:
        return None
    known = [isinstance(a, Tensor) and (id(a) in rows.of or id(a) in rows.made) for a in args]
    if sum(known) != 1:
        return None
    place = known.index(True)
    p = args[place]
    if name == "expand":
        sizes = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        return _expanded(p, tuple(sizes), marks, rows)
    if name in VIEWS:
        return _viewed(func, p, args[1:], kwargs, rows) if place == 0 else None
    x = args[1 - place] if len(args) == 2 else None
    if not isinstance(x, Tensor) or not _broadcasts(p, x):
        return None
    q = _rows(p, x, marks, rows)
    return func(*((q, x) if place == 0 else (x, q)), **kwargs)


def _viewed(
    func: Any, p: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Rows
) -> Tensor:
    """The same of a parameter and of its rows."""
    made: Tensor = func(p, *args, **kwargs)
    if made is not p:
        row = torch.vmap(lambda p: func(p, *args, **kwargs))(_row(p, rows))
        rows.made[id(made)] = made, row
    return made


def _row(p: Tensor, rows: Rows) -> Tensor:
    return rows.of[id(p)] if id(p) in rows.of else rows.made[id(p)][1]


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
    found: Tensor = _Rows.apply(p, _row(p, rows), shape, marks, rows.slices(x))  # type: ignore[no-untyped-call]
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
    @unwatched
    def backward(ctx: Any, saved: Saved, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.marks.second:
            return g.sum(0).reshape(ctx.shape), None, None, None, None
        by_piece = by_slice(lambda g: g.sum(0).reshape(ctx.shape), ctx.slices, g)
        return None, by_piece, None, None, None
