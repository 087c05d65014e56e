"""Agreement: GradCosine without the part of the gradients that does not depend on the inputs.

GradCosine is near 1 for a network that ignores its inputs: the gradients of all samples then point
towards the same constant output. So we subtract from every gradient the mean gradient of the same
inputs with the targets of other samples,

    h_d = g_d - mean_s g_d^(s),        g_d^(s): sample i has the target of sample i + s,

which is the gradient of the loss ``L(x, y) - mean_s L(x, y_s)``. Every engine differentiates this
loss as it does any other. The agreement is the mean cosine of ``h_i`` and ``h_j`` over all
pairs ``i != j``. ``docs/how-it-works/agreement.md`` has the derivation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch, Data, Interval
from neuroinit.gradients.collectors import Objective
from neuroinit.gradients.engines import Derivative, Engine
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.passes.trials import agree
from neuroinit.gradients.plan import Plan
from neuroinit.kernels.context import NotSeparableError
from neuroinit.kernels.losses import OtherTargets
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

ROUNDING = 16.0  # h_d is a rounding error if ||h_d|| <= ROUNDING * eps * ||g_d||
FEW = 3  # samples with which `targets_enter_losses_only` is tested
PERMUTATIONS = 4  # of the targets; more reduce the noise, and each takes one more loss evaluation


def contrast(problem: Problem, size: int = 0) -> Problem:
    """The same model with the loss ``L(x, y) - mean_s L(x, y_s)``, for batches of :func:`permuted`.

    Both problems share their traits, because samples are independent in both losses or in neither.

    Args:
        problem: The model and the user's loss.
        size: With a ``compute_loss``: batches of ``size`` samples take one forward pass for all
            targets, see :func:`targets_enter_losses_only`.
    """
    twin, loss_fn, compute_loss = copy.copy(problem), problem.loss_fn, problem.compute_loss
    if compute_loss is None:
        twin.loss_fn = lambda output, targets: _excess(_each(lambda t: loss_fn(output, t), targets))

        def excess_of_pieces(output: Data, targets: Data, own: Sequence[Interval]) -> Tensor | None:
            losses = _of_pieces(problem, output, targets, own)
            return None if losses is None else _excess(losses)

        twin.losses_of_pieces = excess_of_pieces
        return twin

    def excess(model: nn.Module, batches: Sequence[Batch]) -> Tensor:
        if problem.layout.size(batches[0]) != size:
            return _excess(_each(lambda batch: compute_loss(model, batch), batches))
        with OtherTargets(size, _shifts(size)):
            return compute_loss(model, batches[0])

    twin.compute_loss = excess
    return twin


def noting_contrast(problem: Problem, noted: list[Tensor]) -> Problem:
    """The same model with the user's loss, for batches of :func:`permuted`.

    Every evaluation also appends the loss of :func:`contrast` to ``noted``, so one forward pass
    gives both losses. Only for a ``loss_fn``.
    """
    twin, loss_fn = copy.copy(problem), problem.loss_fn

    def loss_of_user(output: Data, targets: Sequence[Data]) -> Tensor:
        losses = _each(lambda t: loss_fn(output, t), targets)
        noted.append(_excess(losses).mean())
        return losses[0]

    def losses_of_user(output: Data, targets: Data, pieces: Sequence[Interval]) -> Tensor | None:
        losses = _of_pieces(problem, output, targets, pieces)
        if losses is None:
            return None
        noted.extend(_excess(losses).unbind())
        return losses[0]

    twin.loss_fn, twin.losses_of_pieces = loss_of_user, losses_of_user
    return twin


def targets_enter_losses_only(point: Point, batch: Batch) -> bool:
    """Whether the targets of a ``compute_loss`` only enter loss functions of torch.

    Then one forward pass is enough for several targets. Tested once, on a few samples: one pass and
    several passes must give the same loss.
    """
    problem = point.problem

    def test() -> bool | None:
        few = problem.layout.cut(batch, 0, min(FEW, problem.layout.size(batch)))
        if float(_contrasted_loss(point, few, 0)) == 0:
            return None  # these samples have equal targets
        return agree(point, few, _losses_in_both_ways)

    return problem.compute_loss is not None and problem.traits.find("targets in losses", test)


def _losses_in_both_ways(point: Point, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """The loss of :func:`contrast` by one forward pass for all targets, and by one for each."""
    size = point.problem.layout.size(batch)
    return [_contrasted_loss(point, batch, size)], [_contrasted_loss(point, batch, 0)]


def _contrasted_loss(point: Point, batch: Batch, size: int) -> Tensor:
    problem = point.problem
    with replace(point, problem=contrast(problem, size)).session() as session:
        value = session.loss_value(permuted(problem, batch))
    return torch.tensor(value, dtype=problem.start[problem.trainable[0]].dtype, device="cpu")


def permuted(problem: Problem, batch: Batch) -> Batch:
    """A batch with its targets and with permuted targets, for the problem of :func:`contrast`.

    Permutations are cyclic shifts by multiples of ``B / (PERMUTATIONS + 1)`` samples.

    Args:
        problem: The model and the user's loss.
        batch: A prepared batch.

    Returns:
        ``(inputs, (targets, permuted targets, ...))`` for a ``loss_fn``; a tuple of batches, the
        original first, for a ``compute_loss``.

    Raises:
        ValueError: If it is not known which part of the batch the targets are.
    """
    shifts = _shifts(problem.layout.size(batch))
    batches = (batch, *(problem.layout.with_other_targets(batch, shift) for shift in shifts))
    if problem.compute_loss is not None:
        return batches
    return batch[0], tuple(other[1] for other in batches)


def differentiated(
    engine: Engine,
    point: Point,
    batch: Batch,
    plan: Plan,
    objective: Objective,
    gram: bool,
) -> Derivative:
    """``engine.derivative`` of an objective that may read ``moments.agreement``.

    The agreement ``A`` and its derivative are computed only if the objective reads it:

        dPhi/dw = dPhi/d(norms, cosine) d(norms, cosine)/dw + dPhi/dA dA/dw.
    """
    known: list[tuple[Tensor, Derivative]] = []  # A as an autograd leaf, and its derivative
    slope = 0.0

    def agreement(moments: Moments) -> Tensor:
        if not known:
            contrasted = replace(point, problem=contrast(point.problem))
            others = permuted(point.problem, batch)
            by_scales = engine.derivative(contrasted, others, plan, _distinct_cosine)
            check_contrast(by_scales.moments.norms, moments.norms.detach(), point.problem)
            value = torch.tensor(by_scales.value, dtype=torch.float64, device="cpu")
            known.append((value.requires_grad_(), by_scales))
        return known[0][0]

    def whole(moments: Moments) -> Tensor:
        nonlocal slope
        value = objective(replace(moments, contrast=lambda: agreement(moments)))
        if known and isinstance(value, Tensor) and value.requires_grad:
            (by_agreement,) = torch.autograd.grad(
                value, known[0][0], retain_graph=True, allow_unused=True
            )
            slope = 0.0 if by_agreement is None else float(by_agreement)
        return value

    derivative = engine.derivative(point, batch, plan, whole, gram)
    if not known:
        return derivative
    return replace(derivative, gradient=derivative.gradient + slope * known[0][1].gradient)


def check_contrast(norms: Tensor, whole: Tensor, problem: Problem) -> None:
    """Raise if the gradients ``h_d`` are zero up to rounding errors.

    Args:
        norms: ``||h_d||``, shape ``(D,)``.
        whole: ``||g_d||``, shape ``(D,)``.
        problem: The model and the user's loss.
    """
    precision = torch.finfo(problem.start[problem.trainable[0]].dtype).eps
    if norms.max() <= ROUNDING * precision * whole.max():
        raise ValueError(
            "The loss does not depend on the targets, so the agreement is not defined. Say which "
            "part of a batch the targets are with `targets=`."
        )


def _shifts(size: int) -> list[int]:
    """By how many samples each permutation shifts the targets."""
    count = min(PERMUTATIONS, size - 1)
    return [k * size // (count + 1) for k in range(1, count + 1)]


def _distinct_cosine(moments: Moments) -> Tensor:
    return moments.distinct_cosine


def _each(loss: Callable[[Data], Tensor], given: Sequence[Data]) -> list[Tensor]:
    """The loss for each of several targets or batches; the first has the original targets."""
    original = loss(given[0])
    try:
        return [original, *(loss(other) for other in given[1:])]
    except (NotSeparableError, RuntimeError, MemoryError, ValueError):
        raise  # errors of torch, and errors that callers handle
    except Exception as error:
        raise ValueError(
            "The loss cannot take the targets of other samples, which the agreement needs: it "
            f"raises {error!r}."
        ) from error


def _of_pieces(
    problem: Problem, output: Data, targets: Sequence[Data], pieces: Sequence[Interval]
) -> list[Tensor] | None:
    """The losses of all pieces with each of several targets; ``None`` if that is not possible."""
    found = [problem.losses_of_pieces(output, target, pieces) for target in targets]
    known = [losses for losses in found if losses is not None]
    return known if len(known) == len(found) else None


def _excess(losses: Sequence[Tensor]) -> Tensor:
    """The first loss minus the mean of the others."""
    return losses[0] - torch.stack(list(losses[1:])).mean(0)
