"""The second backward: from directions of pieces to the derivative by the scales."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neuroinit.common.tensors import unflatten
from neuroinit.gradients.passes.pieces import Pass, rows_by_tensor
from neuroinit.model.session import Session

LARGE = 2**15  # on a CPU, gradients with this many entries per piece are not copied


def second_backward(
    session: Session,
    passes: Sequence[Pass],
    directions: Tensor,
    retain_graph: bool = False,
) -> Tensor:
    """``<W_k, sum_s [H_s v_s]_k>`` for every scale, on the device of the model.

    Args:
        session: The session of the passes.
        passes: First-order passes with their graphs.
        directions: ``v_s``, shape ``(pieces, parameters)``.
        retain_graph: Keep the graphs of passes over one piece for a further call.
    """
    totals: list[Tensor] = []
    outputs: list[Tensor] = []
    vectors: list[Tensor] = []
    owns = torch.split(directions, [len(made.losses) for made in passes])
    for made, own in zip(passes, owns, strict=True):
        if made.pieces is None:
            outputs += made.gradients
            vectors += unflatten(own[0], made.gradients)
        else:
            totals.append(backward_along(session, made, [own], [made.gradients]))
    if outputs:
        totals.append(session.second_backward(outputs, vectors, retain_graph))
    return totals[0] if len(totals) == 1 else torch.stack(totals).sum(0)


def backward_along(
    session: Session, made: Pass, blocks: Sequence[Tensor], runs: Sequence[Sequence[Tensor]]
) -> Tensor:
    """As :func:`second_backward`, for one pass over several pieces.

    Args:
        session: The session of the pass.
        made: The pass.
        blocks: The directions, one matrix of shape ``(pieces, entries)`` for every group.
        runs: The gradients of the pass, in order, in groups.
    """
    assert made.pieces is not None
    along: list[Tensor] = []
    for own, run in zip(blocks, runs, strict=True):
        parts = torch.split(own, [g.numel() // len(g) for g in run], 1)
        along += [p.view(g.shape).to(g) for p, g in zip(parts, run, strict=True)]
    with session.separating(made.pieces):
        return session.second_backward(made.gradients, along)


def runs_of(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group consecutive gradients; :func:`block_of` joins each group to one matrix.

    On a CPU, a large one is a group alone and is not copied. Writing to fresh memory takes
    longer than anything else that is done with them: for 16 gradients of 7.5 million entries, 612
    ms to join them, and 44 ms to compute directions in place.
    """
    found: list[list[Tensor]] = [[]]
    for g in gradients:
        if g.numel() >= LARGE * len(g) and _may_be_overwritten(g):
            found += [[g], []]
        else:
            found[-1].append(g)
    return [run for run in found if run]


def block_of(run: Sequence[Tensor]) -> Tensor:
    """A matrix with one row per piece, from a group of gradients. It can be overwritten."""
    alone = len(run) == 1 and _may_be_overwritten(run[0])
    return rows_by_tensor(run)[0] if alone else torch.cat(rows_by_tensor(run), 1)


def _may_be_overwritten(g: Tensor) -> bool:
    """Whether a gradient comes from a linear layer or a convolution, so no graph has saved it."""
    return g.device.type == "cpu" and type(g.grad_fn).__name__ == "_LayerGradientsBackward"
