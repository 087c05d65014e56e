"""Tests of a model's properties; the outcomes are cached in ``problem.traits``.

Every test computes the same tensors in two ways, and :func:`agree` compares them:

- *independent*: does ``B_1 g_1 + B_2 g_2 = B g`` hold for two parts of a batch? Then a sub-batch
  can be cut into pieces.
- *separable*: does one pass over two pieces give the same two gradients as two passes? Then several
  pieces are computed in one pass, see ``pieces.py``.
- *spreadable*: does a batch whose samples are spread over the ranks of a sharded model give the
  same gradient as the batch on every rank? See ``sharded/problem.py``.
- *targets in losses*: does one forward pass for several targets give the same loss as one pass for
  each? See ``gradients/agreement.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval, ragged
from neuroinit.common.errors import out_of_memory
from neuroinit.common.tensors import flatten, quick_norms, sum_dtype, to_host
from neuroinit.gradients.passes.pieces import one_by_one, one_pass
from neuroinit.kernels.context import NotSeparableError
from neuroinit.model.double import in_double
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session
from neuroinit.model.traits import Trait

TRIAL = 9  # samples in the test of separable pieces
NORMALIZED_TRIAL = 8  # samples in each piece with BatchNorm; fewer make rounding errors large
KINKS = 0.05  # larger errors cannot come from rounding at the kinks of activations
MODULE_SHARE = 1e-3  # weight of the largest gradient norm in a module in relative errors

# the same tensors, computed in the way that is tested and in a way that is known to be correct
Pair = tuple[Sequence[Tensor], Sequence[Tensor]]

# -- comparing -------------------------------------------------------------------------------------


def agree(
    point: Point,
    batch: Batch,
    compute: Callable[[Point, Batch], Pair | None],
    modules: Sequence[str] = ("",),
    norms: Callable[[Sequence[Tensor]], list[float]] | None = None,
    found: Pair | None = None,
) -> bool:
    """Whether two ways to compute the same tensors agree up to rounding.

    Rounding can move an activation across the kink of a ReLU, which changes gradients by more than
    rounding does. If the error is small enough for this, the tensors are computed again from a few
    samples in float64.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        compute: Computes both at a point, or returns ``None`` if the tested way is not possible.
        modules: See :func:`relative_error`.
        norms: See :func:`relative_error`.
        found: Both at the point, if they are known.
    """
    found = compute(point, batch) if found is None else found
    if found is None:
        return False
    tolerance = 1e-8 if found[1][0].dtype == torch.float64 else 1e-3
    error = relative_error(*found, modules, norms)
    if point.problem.sharded or not tolerance < error <= KINKS:
        return error <= tolerance
    layout = point.problem.layout
    few = layout.cut(batch, 0, min(TRIAL, layout.size(batch)))
    try:
        found = compute(*in_double(point, few))
    except (RuntimeError, ValueError, TypeError):  # it cannot be copied or run in float64
        return False
    return found is not None and relative_error(*found, modules, norms) <= 1e-8


def relative_error(
    tested: Sequence[Tensor],
    correct: Sequence[Tensor],
    modules: Sequence[str],
    norms: Callable[[Sequence[Tensor]], list[float]] | None = None,
) -> float:
    """The largest relative error over several tensors, such as the gradients of parameters.

    In a network whose gradients explode, the gradients of parameters differ by many orders of
    magnitude. So errors are relative to the norm of the parameter's gradient plus, with a small
    weight, the largest norm in its module.

    Args:
        tested: The tensors to test.
        correct: The correct tensors.
        modules: The name of the module that each of them belongs to.
        norms: Computes the norms of tensors, if ranks have parts of them.
    """
    both = (norms or all_norms)([*torch._foreach_sub(list(tested), list(correct)), *correct])
    errors, lengths = both[: len(correct)], both[len(correct) :]
    largest: dict[str, float] = {}
    for module, value in zip(modules, lengths, strict=True):
        largest[module] = max(value, largest.get(module, 0.0))
    sizes = [
        value + MODULE_SHARE * largest[module]
        for value, module in zip(lengths, modules, strict=True)
    ]
    wrong = [(e, s) for e, s in zip(errors, sizes, strict=True) if e]
    return max((e / s if s and not math.isnan(e) else math.inf for e, s in wrong), default=0.0)


def all_norms(tensors: Sequence[Tensor]) -> list[float]:
    """The norms of tensors, in few operators.

    Norms that may over- or underflow in float32 are computed again one by one.
    """
    norms = quick_norms(tensors)
    unsafe = [tensors[k] for k, value in enumerate(norms) if not 1e-12 < value < 1e18]
    exact = [torch.linalg.vector_norm(t, dtype=sum_dtype(t)) for t in unsafe]
    again = iter(to_host(*exact) if exact else [])
    return [value if 1e-12 < value < 1e18 else float(next(again)) for value in norms]


# -- independent samples ---------------------------------------------------------------------------


def samples_are_independent(problem: Problem, batch: Batch) -> bool:
    """Whether the loss is a mean over samples that do not depend on each other.

    Tested at unit scales on the first batch, and again on the first :func:`ragged` batch.
    """
    trait: Trait = "independent if ragged" if ragged(batch) else "independent"
    return problem.traits.find(
        trait, lambda: not problem.batch_norms and _parts_make_the_whole(problem, batch)
    )


def _parts_make_the_whole(problem: Problem, batch: Batch) -> bool:
    """Whether ``B_1 g_1 + B_2 g_2 = B g``, on the batch or on as much of it as memory allows."""
    size = problem.layout.size(batch)
    if size == 1:
        return True
    size = max(2, size // problem.ranks.world)  # a rank surely has memory for this
    point = problem.at(problem.unit_scales)
    while True:
        try:
            return agree(point, problem.layout.cut(batch, 0, size), _parts_and_whole)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or size <= 2:
                raise
        size = size // 2


def _parts_and_whole(point: Point, batch: Batch) -> Pair:
    """``(B_1 g_1 + B_2 g_2) / B`` and ``g``, by all parameters."""
    layout, seed, names = point.problem.layout, point.problem.seed, point.problem.trainable
    size = layout.size(batch)
    first = max(1, size // 3)

    def gradient(session: Session, part: Batch, start: int) -> Tensor:
        return flatten(session.gradient(session.loss(part, seed + start), names))

    with point.session(autocast=False) as session:  # rounding would look like dependence
        whole = gradient(session, batch, 0)
        left = gradient(session, layout.cut(batch, 0, first), 0)
        right = gradient(session, layout.cut(batch, first, size), first)
    return [(first * left + (size - first) * right) / size], [whole]


# -- separable pieces ------------------------------------------------------------------------------


def pieces_are_separable(point: Point, batch: Batch) -> bool:
    """Whether one pass over several pieces gives the correct gradient of each.

    Tested on a few samples of the first batch.
    """
    return _separable(point, batch, None)


def _separable(point: Point, batch: Batch, found: Pair | None) -> bool:
    modules = [n.rpartition(".")[0] for n in point.problem.trainable]
    return point.problem.traits.find(
        "separable", lambda: agree(point, batch, _one_pass_and_two, modules, found=found)
    )


def tells_separable(problem: Problem, pieces: Sequence[Interval], names: Sequence[str]) -> bool:
    """Whether :func:`pass_is_separable` can take the place of the usual test, and is no more work.

    It compares a piece between others, which a model would have to treat like a batch of its own.
    """
    if len(pieces) < 3 or list(names) != problem.trainable:
        return False
    (start, stop), least = pieces[1], NORMALIZED_TRIAL if problem.batch_norms else 1
    return least <= stop - start <= 2 * TRIAL


def pass_is_separable(
    session: Session, batch: Batch, pieces: Sequence[Interval], gradients: Sequence[Tensor]
) -> bool:
    """As :func:`pieces_are_separable`, from a pass over several pieces that was needed anyway.

    Its gradient of the second of three or more pieces is compared with the one that torch computes.
    """
    with session.keeping_layers():
        (apart,) = one_by_one(session, batch, pieces[1:2], session.problem.trainable)
    return _separable(session.point, batch, ([g[1].detach() for g in gradients], apart.gradients))


def may_be_separable(problem: Problem) -> bool:
    """Whether the test of separable pieces has passed, or was not made yet."""
    return problem.traits.outcomes.get("separable", True)


def _one_pass_and_two(point: Point, batch: Batch) -> Pair | None:
    """The gradients of two pieces by one pass and by two; ``None`` if one is not possible."""
    problem, names = point.problem, point.problem.trainable
    pieces = _trial_pieces(problem.layout.size(batch), bool(problem.batch_norms))
    if not pieces:
        return None
    with point.session() as session:
        try:
            apart = [each.gradients for each in one_by_one(session, batch, pieces, names)]
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            return None
        try:
            together = one_pass(session, batch, pieces, names, create_graph=False)
        except (NotSeparableError, RuntimeError, MemoryError, ValueError, TypeError):
            return None
    return together.gradients, [torch.stack(by_piece) for by_piece in zip(*apart, strict=True)]


def _trial_pieces(size: int, normalized: bool) -> list[Interval]:
    """Two pieces of a batch, of equal size with BatchNorm; none if the batch is too small."""
    if normalized:
        each = min(NORMALIZED_TRIAL, size // 2)
        return [(0, each), (each, 2 * each)] if each > 1 else []
    size = min(size, TRIAL)
    first = max(1, size // 3)
    return [(0, first), (first, size)] if size > 1 else []
