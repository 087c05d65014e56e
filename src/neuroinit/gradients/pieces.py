"""The gradients of several pieces of a batch by one pass over all of them.

Where samples do not see each other, the layers of :mod:`neuroinit.kernels` have the activations of
every piece in front of them: only the products with a weight's gradient or direction are taken
piece by piece, and everything else for all samples at once. Whether a model allows it is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Interval, batch_size, cut
from neuroinit.common.errors import out_of_memory
from neuroinit.common.tensors import filled, flatten, unflatten
from neuroinit.gradients.backward import backward_by, check_loss, gradient_of, second_backward
from neuroinit.gradients.plan import Plan
from neuroinit.kernels.context import NotSeparableError, PieceParameters
from neuroinit.model.problem import Problem

TRIAL = 9  # samples of the trial
ENTRIES = 2**22  # of the gradients that `stream` holds at once, if there is more than one


@dataclass(frozen=True)
class Group:
    """One piece, or several that one pass was taken of.

    Args:
        losses: One a piece.
        gradients: By every parameter that is looked at; of several pieces, a row a piece.
        rows: What the layers are told; ``None`` for one piece.
    """

    losses: list[Tensor]
    gradients: Sequence[Tensor]
    rows: PieceParameters | None = None

    @property
    def vectors(self) -> list[Tensor]:
        """The gradients of the pieces as flat vectors."""
        if self.rows is None:
            return [flatten(self.gradients)]
        count, device = len(self.losses), self.gradients[0].device
        parts = [g.detach().reshape(count, -1).to(device) for g in self.gradients]
        return list(torch.cat(parts, 1))


def backward_through(
    problem: Problem, groups: Sequence[Group], directions: Sequence[Tensor], whole: bool = False
) -> Tensor:
    """``<W_k, sum_s [H_s v_s]_k>`` for every scale; ``whole`` as in :class:`Plan`."""
    total, waiting = torch.zeros_like(problem.unit_scales), list(directions)
    alone: list[tuple[Tensor, ...]] = []
    along: list[Tensor] = []
    for group in groups:
        own, waiting = waiting[: len(group.losses)], waiting[len(group.losses) :]
        if group.rows is None:
            alone.append(tuple(group.gradients))
            along += own
            continue
        parts = zip(*(unflatten(d, [g[0] for g in group.gradients]) for d in own), strict=True)
        with problem.by_piece(group.rows):
            total = total + backward_by(problem, group.gradients, [torch.stack(p) for p in parts])
    if alone:
        total = total + second_backward(problem, alone, along, retain_graph=whole)
    return total


def passes_over(
    problem: Problem,
    batch: Any,
    plan: Plan,
    at_once: int,
    create_graph: bool = False,
    names: Sequence[str] | None = None,
    most: int | None = None,
) -> Iterator[Group]:
    """The losses and gradients of a plan's pieces, by as few passes as can be.

    Args:
        problem: In a session.
        batch: A prepared batch.
        plan: Its pieces.
        at_once: The most samples of a pass, if there is a choice.
        create_graph: Whether there will be a second backward.
        names: The parameters; by default those that are looked at.
        most: The most pieces of a pass.
    """
    names = problem.differentiated if names is None else names
    if plan.whole or not tells_pieces(problem, batch):
        for loss in problem.losses(batch, plan.pieces, plan.whole):
            yield _alone(problem, loss, names, create_graph, plan.whole)
        return
    for pieces in _grouped(plan.pieces, at_once, most or len(plan.pieces)):
        try:
            found = [_together(problem, batch, pieces, names, create_graph)]
        except NotSeparableError:  # the model took another way with these than in the trial
            problem.tells_pieces = False
            losses = problem.losses(batch, pieces, False)
            found = [_alone(problem, loss, names, create_graph) for loss in losses]
        while found:
            yield found.pop(0)


def _alone(
    problem: Problem, loss: Tensor, names: Sequence[str], create_graph: bool, whole: bool = False
) -> Group:
    return Group([loss.detach()], gradient_of(problem, loss, names, create_graph, whole))


def _together(
    problem: Problem,
    batch: Any,
    pieces: Sequence[Interval],
    names: Sequence[str],
    create_graph: bool,
) -> Group:
    if not problem.tells_pieces:  # an earlier group has shown it
        raise NotSeparableError
    batch = cut(batch, pieces[0][0], pieces[-1][1])
    rows, theta = problem.rows(pieces, names), problem.theta(names)
    leaves = list(rows.leaves.values())
    with problem.by_piece(rows):
        losses = list(problem.losses(batch, rows.intervals, whole=True))
        total = torch.stack(losses).sum()
        check_loss(total)
        found = problem.gradient_by(total, [*leaves, *theta], create_graph)
    if len(leaves) < len(theta) or any(g is not None for g in found[len(leaves) :]):
        raise NotSeparableError
    gradients = filled(found[: len(leaves)], leaves)
    return Group([loss.detach() for loss in losses], gradients, rows)


def _grouped(pieces: Sequence[Interval], at_once: int, most: int) -> list[list[Interval]]:
    """Pieces that follow one another, so many samples and pieces at most, or one larger piece."""
    found: list[list[Interval]] = []
    for start, stop in pieces:
        last = found[-1] if found else []
        fits = last and last[-1][1] == start and stop - last[0][0] <= at_once and len(last) < most
        if fits:
            last.append((start, stop))
        else:
            found.append([(start, stop)])
    return found


def may_tell_pieces(problem: Problem) -> bool:
    """Whether the gradients of pieces might be had in one pass over several."""
    possible = problem.compute_loss is None and not problem.batch_norms
    return possible and problem.tells_pieces is not False


def tells_pieces(problem: Problem, batch: Any) -> bool:
    """Whether they can; tried where the gradients are those of a step."""
    if problem.tells_pieces is None:
        problem.tells_pieces = may_tell_pieces(problem) and _tried(problem, batch)
    return problem.tells_pieces


def _tried(problem: Problem, batch: Any) -> bool:
    """Whether one pass over two pieces finds what two passes find, parameter by parameter.

    Networks whose gradients explode have them of very different sizes, so rounding is measured by
    the largest gradient of a module.
    """
    size = min(batch_size(batch), TRIAL)
    if size == 1:
        return False
    pieces, names = [(0, size // 3 or 1), (size // 3 or 1, size)], problem.trainable
    problem.tells_pieces = True
    try:
        with problem.session():
            rows = _together(problem, batch, pieces, names, False).gradients
            losses = problem.losses(batch, pieces, False)
            apart = [_alone(problem, loss, names, False).gradients for loss in losses]
    except NotSeparableError:
        return False
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return False
    finally:
        problem.tells_pieces = None
    wanted = [torch.stack(found) for found in zip(*apart, strict=True)]
    tolerance = 1e-8 if wanted[0].dtype == torch.float64 else 1e-3
    errors = [float(problem.norm(r - w)) for r, w in zip(rows, wanted, strict=True)]
    norms = [float(problem.norm(w)) for w in wanted]
    modules = [n.rpartition(".")[0] for n in names]
    largest: dict[str, float] = {}
    for module, norm in zip(modules, norms, strict=True):
        largest[module] = max(norm, largest.get(module, 0.0))
    return all(
        error <= tolerance * (norm + 1e-3 * largest[module])
        for error, norm, module in zip(errors, norms, modules, strict=True)
    )


def quarter(batch: Any, plan: Plan) -> int:
    """The samples that `stream` takes at once: about a training step's memory."""
    return plan.microbatch or -(-batch_size(batch) // 4)


def few(problem: Problem) -> int:
    """The pieces that `stream` takes at once."""
    theta = problem.theta(problem.differentiated)
    return max(1, ENTRIES // sum(t.numel() for t in theta))
