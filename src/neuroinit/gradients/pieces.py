"""First-order passes: the losses and gradients of the pieces of a batch.

Where the model allows it, one pass is taken over several pieces: the replaced layers of
:mod:`neuroinit.kernels` have the activations of all pieces, and compute only the products with the
gradient of a weight piece by piece. Otherwise every piece is a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.tensors import flatten, unflatten, zeros_if_missing
from neuroinit.kernels.context import NotSeparableError, PieceParameters
from neuroinit.model.finite import check_loss
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session

if TYPE_CHECKING:
    from neuroinit.gradients.plan import Plan

ENTRIES = 2**22  # of the gradients that are held at once, if there is more than one


@dataclass(frozen=True)
class Pass:
    """The result of a pass over one piece, or over several pieces together.

    Args:
        losses: One a piece.
        gradients: One a parameter. Of several pieces, dimension 0 counts the pieces.
        pieces: What the replaced layers were told; ``None`` for one piece.
    """

    losses: list[Tensor]
    gradients: Sequence[Tensor]
    pieces: PieceParameters | None = None

    @property
    def vectors(self) -> list[Tensor]:
        """The gradient of every piece as a flat vector."""
        if self.pieces is None:
            return [flatten(self.gradients)]
        count, device = len(self.losses), self.gradients[0].device
        parts = [g.detach().reshape(count, -1).to(device) for g in self.gradients]
        return list(torch.cat(parts, 1))


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

    Whether pieces are separable was tried before, see ``trials.py``; if not, they are taken one by
    one.

    Args:
        session: Where the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        names: The parameters that the gradients are taken by.
        samples: Most samples in a pass over several pieces.
        pieces: Most pieces in a pass; no limit by default.
        create_graph: Keep the graph of the gradients for a second backward.
    """
    if plan.one_forward or not session.problem.traits.separable:
        for loss in session.losses(batch, plan.pieces, plan.one_forward):
            yield pass_of_piece(session, loss, names, create_graph, plan.one_forward)
        return
    for group in _grouped(plan.pieces, samples, pieces or len(plan.pieces)):
        yield from _passes_of(session, batch, group, names, create_graph)


def _passes_of(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
) -> Iterator[Pass]:
    """One pass over some pieces, or one pass each where the model turns out not to be separable."""
    traits = session.problem.traits
    found: list[Pass] = []
    if traits.separable:
        try:
            found = [one_pass(session, batch, pieces, names, create_graph)]
        except NotSeparableError:  # the model computes these differently than in the trial
            traits.separable = False
    if not traits.separable:
        losses = session.losses(batch, pieces, False)
        found = [pass_of_piece(session, loss, names, create_graph) for loss in losses]
    while found:  # the caller is to hold the only reference to a graph
        yield found.pop(0)


def pass_of_piece(
    session: Session,
    loss: Tensor,
    names: Sequence[str],
    create_graph: bool = False,
    retain_graph: bool = False,
) -> Pass:
    """The pass over one piece, from its loss."""
    gradients = session.gradient(loss, names, create_graph, retain_graph)
    return Pass([loss.detach()], gradients)


def one_pass(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
) -> Pass:
    """One pass over several consecutive pieces.

    Raises:
        NotSeparableError: If the gradients of the pieces cannot be kept apart.
    """
    batch = session.problem.layout.cut(batch, pieces[0][0], pieces[-1][1])
    parameters, tensors = session.piece_parameters(pieces, names), session.point.tensors(names)
    leaves = list(parameters.leaves.values())
    with session.separating(parameters):
        losses = list(session.losses(batch, parameters.intervals, one_forward=True))
        total = torch.stack(losses).sum()
        check_loss(total)
        found = session.gradient_by(total, [*leaves, *tensors], create_graph)
    if len(leaves) < len(tensors) or any(g is not None for g in found[len(leaves) :]):
        raise NotSeparableError
    gradients = zeros_if_missing(found[: len(leaves)], leaves)
    return Pass([loss.detach() for loss in losses], gradients, parameters)


def second_backward(
    session: Session,
    passes: Sequence[Pass],
    directions: Sequence[Tensor],
    retain_graph: bool = False,
) -> Tensor:
    """``<W_k, sum_s [H_s v_s]_k>`` for every scale.

    Args:
        session: The session of the passes.
        passes: First-order passes with their graphs.
        directions: ``v_s`` of every piece as a flat vector, in order.
        retain_graph: Keep the graphs of passes over one piece for a further call.
    """
    waiting = iter(directions)
    total = torch.zeros_like(session.problem.unit_scales)
    outputs: list[Tensor] = []
    vectors: list[Tensor] = []
    for made in passes:
        own = [next(waiting) for _ in made.losses]
        if made.pieces is None:
            outputs += made.gradients
            vectors += unflatten(own[0], made.gradients)
            continue
        parts = zip(*(unflatten(v, [g[0] for g in made.gradients]) for v in own), strict=True)
        with session.separating(made.pieces):
            along = [torch.stack(part) for part in parts]
            total = total + session.second_backward(made.gradients, along)
    if outputs:
        total = total + session.second_backward(outputs, vectors, retain_graph)
    return total


def _grouped(pieces: Sequence[Interval], samples: int, most: int) -> list[list[Interval]]:
    """Groups of consecutive pieces with at most so many samples and pieces; or one larger piece."""
    found: list[list[Interval]] = []
    for start, stop in pieces:
        last = found[-1] if found else []
        fits = last and last[-1][1] == start and stop - last[0][0] <= samples and len(last) < most
        if fits:
            last.append((start, stop))
        else:
            found.append([(start, stop)])
    return found


def streamed_samples(problem: Problem, batch: Batch, plan: Plan) -> int:
    """Samples that `stream` takes at once: a quarter, for about a training step's memory."""
    return plan.microbatch or -(-problem.layout.size(batch) // 4)


def streamed_pieces(problem: Problem) -> int:
    """Pieces that `stream` takes at once, by the size of their gradients."""
    return max(1, ENTRIES // sum(problem.start[n].numel() for n in problem.differentiated))
