"""First-order passes: the losses and gradients of the pieces of a batch.

Where the model allows it, one pass computes several pieces: the layers of
:mod:`neuroinit.kernels` process the activations of all pieces at once, and compute the gradient of
a weight for each piece separately. Otherwise every piece takes one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.tensors import flatten, zeros_if_missing
from neuroinit.gradients.passes.grouping import grouped, side_by_side
from neuroinit.kernels.context import NotSeparableError, PieceParameters
from neuroinit.model.finite import check_graph
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session, consecutive

if TYPE_CHECKING:
    from neuroinit.gradients.plan import Plan

ENTRIES = 2**22  # most entries of the gradients that one pass over several pieces computes


@dataclass(frozen=True)
class Pass:
    """The result of a pass over one piece, or over several pieces together.

    Args:
        losses: One loss per piece.
        gradients: One tensor per parameter. For several pieces, dimension 0 is the piece.
        pieces: The leaves by which the pieces were differentiated; ``None`` for one piece.
    """

    losses: list[Tensor]
    gradients: Sequence[Tensor]
    pieces: PieceParameters | None = None

    @property
    def rows(self) -> Tensor:
        """The gradients of the pieces, shape ``(pieces, parameters)``."""
        if self.pieces is None:
            return flatten(self.gradients)[None]
        return torch.cat(rows_by_tensor(self.gradients), 1)


def rows_by_tensor(gradients: Sequence[Tensor]) -> list[Tensor]:
    """For every tensor, a matrix with one row per piece, on the device of the first tensor."""
    device = gradients[0].device
    rows = [g.detach().reshape(g.shape[0], -1) for g in gradients]
    return [g if g.device == device else g.to(device) for g in rows]


def passes_over(
    session: Session,
    batch: Batch,
    plan: Plan,
    names: Sequence[str],
    samples: int,
    pieces: int | None = None,
    create_graph: bool = False,
) -> Iterator[Pass]:
    """The losses and gradients of a plan's pieces, in as few passes as possible.

    If pieces are not separable (``try_separating`` in ``trials.py`` tests it first), every piece
    takes one pass.

    Args:
        session: The session in which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        names: The parameters to differentiate by.
        samples: Most samples in a pass over several pieces.
        pieces: Most pieces in a pass; no limit by default.
        create_graph: Keep the graph of the gradients for a second backward.
    """
    copied = pieces is None and takes_copies(session.problem, plan)
    if not session.problem.traits.separable or (plan.one_forward and not copied):
        yield from one_by_one(session, batch, plan.pieces, names, create_graph, plan.one_forward)
        return
    alike = bool(session.problem.batch_norms)
    groups = grouped(plan.pieces, samples, pieces or len(plan.pieces), alike)
    for group in [list(plan.pieces)] if copied else groups:
        yield from _passes_of(session, batch, group, names, create_graph, copied)


def takes_copies(problem: Problem, plan: Plan) -> bool:
    """Whether the pieces of one forward pass are computed from copies of the whole batch.

    With BatchNorm over the whole batch, the gradient of a piece depends on all samples, so every
    piece needs a backward pass through the whole batch. Instead, one pass over as many copies of
    the batch takes the loss of piece ``s`` from copy ``s``. This needs the memory of all copies and
    as much arithmetic, but few operators for any number of pieces: faster on an accelerator.
    """
    return plan.one_forward and problem.device.type != "cpu"


def _passes_of(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
    copied: bool,
) -> Iterator[Pass]:
    """One pass over some pieces; one pass per piece if the model is not separable after all."""
    traits = session.problem.traits
    passes: list[Pass] = []
    if traits.separable:
        try:
            passes = [one_pass(session, batch, pieces, names, create_graph, copied)]
        except NotSeparableError:  # the forward pass of these pieces is not that of the test
            traits.separable = False
    if not traits.separable:
        passes = list(one_by_one(session, batch, pieces, names, create_graph, copied))
    while passes:  # the caller gets the only reference to each graph, so that it can be freed
        yield passes.pop(0)


def one_by_one(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool = False,
    one_forward: bool = False,
) -> Iterator[Pass]:
    """Yield one pass per piece.

    Args:
        session: The session in which the model is evaluated.
        batch: A prepared batch.
        pieces: ``(start, stop)`` of every piece.
        names: The parameters to differentiate by.
        create_graph: Keep the graph of the gradients for a second backward.
        one_forward: Pieces are slices of one forward pass of the whole batch.
    """
    shared = one_forward and len(pieces) > 1  # the pieces share the graph of the forward pass
    for loss in session.losses(batch, pieces, one_forward):
        gradients = session.gradient(loss, names, create_graph, retain_graph=shared)
        yield Pass([loss.detach()], gradients)


def one_pass(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
    copied: bool = False,
) -> Pass:
    """One pass over several pieces: :func:`forward_pass`, then :func:`backward_pass`.

    Args:
        session: The session in which the model is evaluated.
        batch: A prepared batch.
        pieces: ``(start, stop)`` of every piece.
        names: The parameters to differentiate by.
        create_graph: Keep the graph of the gradients for a second backward.
        copied: Every piece is a slice of a copy of the whole batch, see :func:`takes_copies`.

    Raises:
        NotSeparableError: If the gradients of the pieces cannot be kept apart.
    """
    losses, parameters = forward_pass(session, batch, pieces, names, copied)
    return backward_pass(session, losses, parameters, names, create_graph)


def forward_pass(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    copied: bool = False,
) -> tuple[list[Tensor], PieceParameters]:
    """The losses of several pieces, and the leaves by which they can be differentiated."""
    size = session.problem.layout.size(batch)
    parts = [(0, size)] * len(pieces) if copied else pieces
    rows = [k * size + i for k, (a, b) in enumerate(pieces) for i in range(a, b)]
    batch = side_by_side(session.problem.layout, batch, parts)
    parameters = session.piece_parameters(parts, names)
    with session.separating(parameters):
        within = consecutive(pieces), rows if copied else None
        return list(session.losses_in_one_pass(batch, *within)), parameters


def backward_pass(
    session: Session,
    losses: Sequence[Tensor],
    parameters: PieceParameters,
    names: Sequence[str],
    create_graph: bool = False,
    retain_graph: bool = False,
) -> Pass:
    """The gradients of the losses that :func:`forward_pass` returned, or of others in its graph."""
    leaves, tensors = list(parameters.leaves.values()), session.point.tensors(names)
    total, count = torch.stack(list(losses)).sum(), len(leaves)
    check_graph(total)
    with session.separating(parameters):
        found = session.gradient_by(total, [*leaves, *tensors], create_graph, retain_graph)
    if count < len(tensors) or any(g is not None for g in found[count:]):
        raise NotSeparableError
    gradients = zeros_if_missing(found[:count], leaves)
    return Pass([loss.detach() for loss in losses], gradients, parameters)


def streamed_samples(problem: Problem, batch: Batch, plan: Plan) -> int:
    """Samples in a pass of `stream`: a quarter needs about the memory of a training step."""
    return plan.microbatch or -(-problem.layout.size(batch) // 4)


def streamed_pieces(problem: Problem) -> int:
    """Pieces in a pass of `stream`, so that their gradients have at most ``ENTRIES`` entries."""
    return max(1, ENTRIES // sum(problem.start[n].numel() for n in problem.differentiated))
