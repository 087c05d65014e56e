"""Tests of a model's properties by computing gradients; results are cached in ``problem.traits``.

Every test computes gradients in two ways and compares them, see :func:`relative_error`:

- *independent*: does ``B_1 g_1 + B_2 g_2 = B g`` hold for two parts of a batch? Then a sub-batch
  can be cut into pieces.
- *separable*: does one pass over two pieces give the same two gradients as two passes? Then several
  pieces are computed in one pass, see ``pieces.py``.
- *spreadable*: does a batch whose samples are spread over the ranks of a sharded model give the
  same gradient as the batch on every rank? Tested in ``sharded/problem.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval, ragged
from neuroinit.common.errors import out_of_memory
from neuroinit.common.tensors import quick_norms, to_host
from neuroinit.gradients.passes.pieces import one_by_one, one_pass
from neuroinit.kernels.context import NotSeparableError
from neuroinit.model.double import in_double
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

TRIAL = 9  # samples in the test of separable pieces
NORMALIZED_TRIAL = 8  # samples in each piece with BatchNorm; fewer make rounding errors large
KINKS = 0.05  # larger errors cannot come from rounding at the kinks of activations
MODULE_SHARE = 1e-3  # weight of the largest gradient norm in a module in relative errors


def relative_error(
    tested: Sequence[Tensor],
    correct: Sequence[Tensor],
    modules: Sequence[str],
    norm: Callable[[Tensor], Tensor],
) -> float:
    """The largest relative error over the gradients of several parameters.

    In a network whose gradients explode, the gradients of parameters differ by many orders of
    magnitude. So errors are relative to the norm of the parameter's gradient plus, with a small
    weight, the largest norm in its module.

    Args:
        tested: The gradients to test.
        correct: The correct gradients.
        modules: The name of the module that each gradient belongs to.
        norm: Computes the norm of a gradient.
    """
    both = all_norms([*torch._foreach_sub(list(tested), list(correct)), *correct], norm)
    errors, norms = both[: len(correct)], both[len(correct) :]
    largest: dict[str, float] = {}
    for module, value in zip(modules, norms, strict=True):
        largest[module] = max(value, largest.get(module, 0.0))
    sizes = [
        value + MODULE_SHARE * largest[module] for value, module in zip(norms, modules, strict=True)
    ]
    wrong = [(e, s) for e, s in zip(errors, sizes, strict=True) if e]
    return max((e / s if s and not math.isnan(e) else math.inf for e, s in wrong), default=0.0)


def all_norms(tensors: Sequence[Tensor], norm: Callable[[Tensor], Tensor]) -> list[float]:
    """The norms of tensors, in few operators.

    Norms that may over- or underflow in float32 are computed again one by one.
    """
    norms = quick_norms(tensors)
    unsafe = [k for k, value in enumerate(norms) if not 1e-12 < value < 1e18]
    exact = to_host(*(norm(tensors[k]) for k in unsafe)) if unsafe else []
    for k, value in zip(unsafe, exact, strict=True):
        norms[k] = float(value)
    return norms


def same_gradient(problem: Problem, tested: Tensor, correct: Tensor) -> bool:
    """Whether two flat gradients agree up to rounding, see :func:`relative_error`."""
    return relative_error([tested], [correct], [""], problem.norm) <= _tolerance(correct)


def _tolerance(tensor: Tensor) -> float:
    return 1e-8 if tensor.dtype == torch.float64 else 1e-3


def samples_are_independent(problem: Problem, batch: Batch) -> bool:
    """Whether the loss is a mean over samples that do not depend on each other.

    Tested at unit scales on the first batch, and again on the first :func:`ragged` batch.
    """
    known, kind = problem.traits.independent, ragged(batch)
    if kind not in known:
        known[kind] = not problem.batch_norms and _parts_make_the_whole(problem, batch)
    return known[kind]


def _parts_make_the_whole(problem: Problem, batch: Batch) -> bool:
    """Whether ``B_1 g_1 + B_2 g_2 = B g``, on the batch or on as much of it as memory allows."""
    size = problem.layout.size(batch)
    if size == 1:
        return True
    size = max(2, size // problem.ranks.world)  # a rank surely has memory for this
    while True:
        try:
            return _compare_parts(problem, problem.layout.cut(batch, 0, size))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or size <= 2:
                raise
        size = size // 2


def _compare_parts(problem: Problem, batch: Batch) -> bool:
    size, cut = problem.layout.size(batch), problem.layout.cut
    first = max(1, size // 3)
    point = problem.at(problem.unit_scales)
    with point.session(autocast=False) as session:  # rounding would look like dependence
        parts = ((batch, 0), (cut(batch, 0, first), 0), (cut(batch, first, size), first))
        whole, left, right = (
            session.flat_gradient(session.loss(part, problem.seed + start), problem.trainable)
            for part, start in parts
        )
    joined = (first * left + (size - first) * right) / size
    return same_gradient(problem, joined, whole)


def may_be_separable(problem: Problem) -> bool:
    """Whether the test of separable pieces has passed, or was not made yet."""
    return problem.traits.separable is not False


def try_separating(point: Point, batch: Batch) -> None:
    """Test once whether one pass gives the correct gradient of each of several pieces."""
    problem = point.problem
    if problem.traits.separable is None:
        separable = may_be_separable(problem) and _compare_passes(point, batch)
        problem.traits.separable = separable


def _trial_pieces(size: int, normalized: bool) -> list[Interval]:
    """Two pieces of a batch, of equal size with BatchNorm; none if the batch is too small."""
    if normalized:
        each = min(NORMALIZED_TRIAL, size // 2)
        return [(0, each), (each, 2 * each)] if each > 1 else []
    size = min(size, TRIAL)
    first = max(1, size // 3)
    return [(0, first), (first, size)] if size > 1 else []


def _compare_passes(point: Point, batch: Batch) -> bool:
    """Whether one pass over two pieces gives the same gradients as two passes.

    Rounding can move an activation across the kink of a ReLU, which changes the gradients by more
    than rounding does. If the error is small enough for this, the test is repeated in float64.
    """
    tolerance = _tolerance(point.values[point.problem.trainable[0]])
    error = _error_of_one_pass(point, batch)
    if not tolerance < error <= KINKS:
        return error <= tolerance
    samples = point.problem.layout.cut(batch, 0, min(TRIAL, point.problem.layout.size(batch)))
    try:
        return _error_of_one_pass(*in_double(point, samples)) <= 1e-8
    except (RuntimeError, ValueError, TypeError):  # it cannot be copied or run in float64
        return False


def _error_of_one_pass(point: Point, batch: Batch) -> float:
    """The relative error of one pass over two pieces; infinite if such a pass is not possible."""
    problem = point.problem
    size, names = problem.layout.size(batch), problem.trainable
    pieces = _trial_pieces(size, bool(problem.batch_norms))
    if not pieces:
        return math.inf
    with point.session() as session:
        try:
            apart = [each.gradients for each in one_by_one(session, batch, pieces, names)]
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            return math.inf
        try:
            together = one_pass(session, batch, pieces, names, create_graph=False)
        except (NotSeparableError, RuntimeError, MemoryError, ValueError, TypeError):
            return math.inf
    correct = [torch.stack(by_piece) for by_piece in zip(*apart, strict=True)]
    modules = [n.rpartition(".")[0] for n in names]
    return relative_error(together.gradients, correct, modules, problem.norm)
