"""The passes that compute the pieces of a plan: as few as the model and the memory allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.errors import out_of_memory
from neuroinit.gradients.passes.graph_checks import check_double_backward
from neuroinit.gradients.passes.grouping import grouped
from neuroinit.gradients.passes.pieces import Pass, one_by_one, one_pass
from neuroinit.gradients.passes.trials import (
    may_be_separable,
    pass_is_separable,
    pieces_are_separable,
    tells_separable,
)
from neuroinit.gradients.plan import Plan
from neuroinit.kernels.context import NotSeparableError
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session

FEW = 2  # pieces of a model with BatchNorm that a CPU computes in a pass each
ENTRIES = 2**22  # most entries of the gradients that one pass over several pieces computes


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

    If pieces are not separable, every piece takes one pass.

    Args:
        session: The session in which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        names: The parameters to differentiate by.
        samples: Most samples in a pass over several pieces.
        pieces: Most pieces in a pass; no limit by default.
        create_graph: Keep the graph of the gradients for a second backward.
    """
    if not plan.pieces:
        return
    copied = pieces is None and takes_copies(session.problem, plan)
    apart = (plan.one_forward and not copied) or _is_faster_apart(session.problem, plan)
    if apart or not may_be_separable(session.problem):
        yield from one_by_one(session, batch, plan.pieces, names, create_graph, plan.one_forward)
        return
    alike = bool(session.problem.batch_norms)
    groups = grouped(plan.pieces, samples, pieces or len(plan.pieces), alike)
    for group in [list(plan.pieces)] if copied else groups:
        yield from _passes_of(session, batch, group, names, create_graph, copied)


def _is_faster_apart(problem: Problem, plan: Plan) -> bool:
    """Whether a pass per piece is faster than one pass over all pieces.

    BatchNorm side by side reads more memory at once than a CPU caches. A step of ResNet-20 with 32
    images takes 4.3 training steps in place of 4.9 with two sub-batches (overlap 0.6), 3.1 in place
    of 3.5 without overlap; with eight sub-batches one pass takes 3.8 and eight passes 4.9.
    """
    return problem.device.type == "cpu" and bool(problem.batch_norms) and len(plan.pieces) <= FEW


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
    passes = _together(session, batch, pieces, names, create_graph, copied)
    if not passes:
        yield from one_by_one(session, batch, pieces, names, create_graph, copied)
        return
    if create_graph:
        check_double_backward(session.problem, batch, passes[0].gradients)
    yield passes.pop()  # the caller gets the only reference to the graph, so that it can be freed


def _together(
    session: Session,
    batch: Batch,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
    copied: bool,
) -> list[Pass]:
    """One pass over some pieces, in a list; an empty list if the model is not separable.

    Where that was not tested yet, the pass itself is tested if this is no more work.
    """
    traits = session.problem.traits
    untested = "separable" not in traits.outcomes
    test = untested and not copied and tells_separable(session.problem, pieces, names)
    if not test and not pieces_are_separable(session.point, batch):
        return []
    try:
        record = not (create_graph or test)  # what is tested holds for both kinds of pass
        passes = [one_pass(session, batch, pieces, names, create_graph, copied, record)]
    except NotSeparableError:  # also if the pass of these pieces is not that of the test
        traits.note("separable", False)
        return []
    except (RuntimeError, ValueError, TypeError) as error:
        if not test or out_of_memory(error):
            raise
        traits.note("separable", False)
        return []
    if test and not pass_is_separable(session, batch, pieces, passes[0].gradients):
        return []
    return passes


def streamed_samples(plan: Plan) -> int:
    """Samples in a pass of `stream`: a quarter needs about the memory of a training step."""
    return plan.microbatch or -(-plan.size // 4)


def streamed_pieces(problem: Problem) -> int:
    """Pieces in a pass of `stream`, so that their gradients have at most ``ENTRIES`` entries."""
    return max(1, ENTRIES // sum(problem.start[n].numel() for n in problem.differentiated))
