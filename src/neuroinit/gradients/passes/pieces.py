"""One first-order pass: the losses and gradients of one piece of a batch, or of several.

Where the model allows it, one pass computes several pieces: the layers of
:mod:`neuroinit.kernels` process the activations of all pieces at once, and compute the gradient of
a weight for each piece separately. Otherwise every piece takes one pass. ``planned.py`` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.tensors import flatten, zeros_if_missing
from neuroinit.gradients.passes.graph_checks import check_double_backward
from neuroinit.gradients.passes.grouping import side_by_side
from neuroinit.kernels.context import NotSeparableError, PieceParameters
from neuroinit.kernels.products.recorded import recorded_gradients
from neuroinit.model.finite import check_graph
from neuroinit.model.session import Session, consecutive


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
        if create_graph:
            check_double_backward(session.problem, batch, gradients)
        yield Pass([loss.detach()], gradients)


def one_pass(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
    copied: bool = False,
    record: bool = False,
) -> Pass:
    """One pass over several pieces: :func:`forward_pass`, then :func:`backward_pass`.

    Args:
        session: The session in which the model is evaluated.
        batch: A prepared batch.
        pieces: ``(start, stop)`` of every piece.
        names: The parameters to differentiate by.
        create_graph: Keep the graph of the gradients for a second backward.
        copied: Every piece is a slice of a copy of the whole batch, see ``takes_copies`` in
            ``planned.py``.
        record: Leave some layers to torch; only without ``create_graph``.

    Raises:
        NotSeparableError: If the gradients of the pieces cannot be kept apart.
    """
    losses, parameters = forward_pass(session, batch, pieces, names, copied, record)
    return backward_pass(session, losses, parameters, names, create_graph)


def forward_pass(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    copied: bool = False,
    record: bool = False,
) -> tuple[list[Tensor], PieceParameters]:
    """The losses of several pieces, and the leaves by which they can be differentiated."""
    layout, parts, rows = session.problem.layout, pieces, None
    if copied:
        size = layout.size(batch)
        parts = [(0, size)] * len(pieces)
        rows = [k * size + i for k, (a, b) in enumerate(pieces) for i in range(a, b)]
    batch = side_by_side(layout, batch, parts)
    parameters = session.piece_parameters(parts, names, record)
    with session.separating(parameters):
        return list(session.losses_in_one_pass(batch, consecutive(pieces), rows)), parameters


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
    layers = [] if parameters.recorded is None else parameters.recorded.layers
    total, count = torch.stack(list(losses)).sum(), len(leaves)
    check_graph(total)
    inputs = [*leaves, *tensors, *(layer.edge for layer in layers)]
    with session.separating(parameters):
        found = session.gradient_by(total, inputs, create_graph, retain_graph)
    last = count + len(tensors)
    if count < len(tensors) or any(g is not None for g in found[count:last]):
        raise NotSeparableError
    known = recorded_gradients(layers, found[last:])
    by_leaf = [_sum(g, known.get(id(x))) for g, x in zip(found, leaves, strict=False)]
    gradients = zeros_if_missing(by_leaf, leaves)
    return Pass([loss.detach() for loss in losses], gradients, parameters)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum of two gradients; ``None`` is zero."""
    return a if b is None else b if a is None else a + b
