"""The gradients of all pieces by one pass over all of them.

Where samples don't see each other, the layers of :mod:`neuroinit.products` have the activations of
every piece in front of them: only the products with a weight's gradient or direction are taken
piece by piece, and everything else for all samples at once. Whether a model allows it is tried.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from neuroinit.passes import check_loss, gradient_of
from neuroinit.plan import Plan
from neuroinit.problem import Problem
from neuroinit.products import NotByPieceError
from neuroinit.split import Interval, batch_size, cut

TRIAL = 9  # samples of the trial


def tells_pieces(problem: Problem, batch: Any, plan: Plan) -> bool:
    """Whether the gradients of a plan's pieces can be had in one pass."""
    joined = all(a[1] == b[0] for a, b in itertools.pairwise(plan.pieces))
    if not joined or len(plan.pieces) == 1 or plan.whole or problem.compute_loss is not None:
        return False
    if problem.tells_pieces is None:
        problem.tells_pieces = not problem.batch_norms and _tried(problem, batch)
    return problem.tells_pieces


def _tried(problem: Problem, batch: Any) -> bool:
    """Whether one pass over two pieces finds what two passes find, parameter by parameter."""
    size = min(batch_size(batch), TRIAL)
    if size == 1:
        return False
    pieces = (0, size // 3 or 1), (size // 3 or 1, size)
    try:
        with problem.session(pieces=pieces):
            _, rows = rows_of(problem, batch, pieces)
    except NotByPieceError:
        return False
    with problem.session():
        apart = [gradient_of(problem, loss) for loss in problem.losses(batch, pieces, False)]
    wanted = [torch.stack(found) for found in zip(*apart, strict=True)]
    tolerance = 1e-8 if wanted[0].dtype == torch.float64 else 1e-3
    least = 1e-3 * tolerance * torch.stack([w.norm().cpu() for w in wanted]).norm()
    return all(
        bool((r - w).norm() <= tolerance * w.norm() + least.to(w.device))
        for r, w in zip(rows, wanted, strict=True)
    )


def rows_of(
    problem: Problem, batch: Any, pieces: tuple[Interval, ...], create_graph: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """The pieces' losses, and their gradients by every parameter that is looked at, a row a piece.

    To be called in a session for these pieces, which begin at the first sample of the batch.
    """
    batch = cut(batch, 0, pieces[-1][1])
    losses = list(problem.losses(batch, pieces, whole=True))
    total = torch.stack(losses).sum()
    check_loss(total)
    return [loss.detach() for loss in losses], problem.by_piece(total, create_graph)


def joined(rows: list[Tensor]) -> Tensor:
    """The gradients as flat vectors, a row a piece."""
    return torch.cat([r.detach().flatten(1).to(rows[0].device) for r in rows], 1)


def apart(vectors: Tensor, rows: list[Tensor]) -> list[Tensor]:
    """Undo :func:`joined`."""
    parts = torch.split(vectors, [r[0].numel() for r in rows], 1)
    return [part.reshape(r.shape).to(r) for part, r in zip(parts, rows, strict=True)]
