"""The gradients of all pieces by one pass over all of them.

Where samples don't see each other, the layers of :mod:`neuroinit.products` have the activations of
every piece in front of them: only the products with a weight's gradient or direction are taken
piece by piece, and everything else for all samples at once. Whether a model allows it is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroinit.marks import NotByPieceError, Rows
from neuroinit.passes import backward_by, check_loss, gradient_of
from neuroinit.plan import Plan
from neuroinit.problem import Problem
from neuroinit.split import Interval, batch_size, cut
from neuroinit.vectors import unflatten

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
        with problem.session():
            rows = group_of(problem, batch, pieces).gradients
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


@dataclass(frozen=True)
class Group:
    """Pieces that one pass is taken of.

    Args:
        losses: One a piece.
        gradients: By every parameter that is looked at, a row a piece.
        rows: What the layers are told in it.
    """

    losses: list[Tensor]
    gradients: list[Tensor]
    rows: Rows

    @property
    def vectors(self) -> list[Tensor]:
        """The gradients of the pieces as flat vectors."""
        device = self.gradients[0].device
        count = len(self.losses)
        return list(
            torch.cat([g.detach().reshape(count, -1).to(device) for g in self.gradients], 1)
        )

    def second_backward(self, problem: Problem, directions: Sequence[Tensor]) -> Tensor:
        """As :func:`neuroinit.passes.second_backward`, with a direction for every piece."""
        shapes = [g[0] for g in self.gradients]
        parts = zip(*(unflatten(d, shapes) for d in directions), strict=True)
        with problem.by_piece(self.rows):
            return backward_by(problem, self.gradients, [torch.stack(p) for p in parts])


def group_of(
    problem: Problem, batch: Any, pieces: Sequence[Interval], create_graph: bool = False
) -> Group:
    """One pass over pieces that follow one another.

    Raises:
        NotByPieceError: A parameter is used outside of the layers that know the pieces.
    """
    batch = cut(batch, pieces[0][0], pieces[-1][1])
    rows, theta = problem.rows(pieces), problem.theta(problem.differentiated)
    if len(rows.of) < len(theta):
        raise NotByPieceError
    leaves = list(rows.of.values())
    with problem.by_piece(rows):
        losses = list(problem.losses(batch, rows.pieces, whole=True))
        total = torch.stack(losses).sum()
        check_loss(total)
        found = problem.gradient_by(total, [*leaves, *theta], create_graph)
    if any(g is not None for g in found[len(leaves) :]):
        raise NotByPieceError
    gradients = [torch.zeros_like(t) if g is None else g for g, t in zip(found, leaves, strict=False)]
    return Group([loss.detach() for loss in losses], gradients, rows)


def groups(pieces: Sequence[Interval], largest: int) -> list[Sequence[Interval]]:
    """Pieces that follow one another, together at most so many samples, or one larger piece."""
    found: list[list[Interval]] = []
    for piece in pieces:
        if found and piece[1] - found[-1][0][0] <= largest:
            found[-1].append(piece)
        else:
            found.append([piece])
    return found
