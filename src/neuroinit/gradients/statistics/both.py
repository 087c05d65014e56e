"""Gradient statistics together with the agreement, from one forward pass where possible."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.errors import GradientError, LostRankError
from neuroinit.common.tensors import grams_of_tensors, to_host, total_gram, weighted_rows
from neuroinit.gradients import measures
from neuroinit.gradients.agreement import (
    check_contrast,
    contrast,
    noting_contrast,
    permuted,
    targets_enter_losses_only,
)
from neuroinit.gradients.passes.grouping import grouped
from neuroinit.gradients.passes.pieces import Pass, backward_pass, forward_pass, rows_by_tensor
from neuroinit.gradients.passes.trials import pieces_are_separable
from neuroinit.gradients.plan import Plan
from neuroinit.gradients.statistics.gradient_stats import (
    GradientStats,
    measure,
    statistics_of,
)
from neuroinit.kernels.context import NotSeparableError
from neuroinit.model.finite import check_norm
from neuroinit.model.point import Point

log = logging.getLogger(__name__)


def measure_with_agreement_if_possible(
    point: Point, batch: Batch, plan: Plan, held: int | None = None
) -> GradientStats | None:
    """The statistics with the agreement; the agreement is ``nan`` if it cannot be computed.

    That is so if it raises a ``ValueError`` (the targets are not known, or the loss does not depend
    on them or rejects the targets of other samples), a ``RuntimeError`` of an operator, or runs out
    of memory. The reason is logged. Other errors are raised. Returns ``None`` if a gradient is zero
    or not finite.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        held: As for :func:`measure`.
    """
    found = with_agreement_in_one_pass(point, batch, plan, held)
    if found is not None:
        return found
    try:
        with point.problem.ranks.together():
            stats = measure(point, batch, plan, held)
    except GradientError:
        return None
    try:
        with point.problem.ranks.together():
            return with_agreement(stats, point, batch, plan, held)
    except LostRankError:
        raise
    except (ValueError, RuntimeError, MemoryError) as error:
        log.debug("The agreement was not measured: %r", error)
        return stats


def with_agreement_in_one_pass(
    point: Point, batch: Batch, plan: Plan, held: int | None
) -> GradientStats | None:
    """The statistics with the agreement, from one forward pass and two backward passes.

    ``None`` if the two have to be computed one after the other: if memory does not allow to hold
    all gradients, if the loss is a ``compute_loss``, if the pieces are not separable or are spread
    over ranks, or after any error. The caller then computes the two separately, and raises errors.
    """
    problem, count = point.problem, len(plan.weights)
    if plan.one_forward or count < 2 or problem.compute_loss is not None or not problem.ranks.alone:
        return None
    if held is not None or plan.microbatch is not None:
        return None
    try:
        return _in_one_pass(point, batch, plan) if pieces_are_separable(point, batch) else None
    except (NotSeparableError, ValueError, RuntimeError, MemoryError) as error:
        log.debug("The agreement takes a separate forward pass: %r", error)
        return None


def _in_one_pass(point: Point, batch: Batch, plan: Plan) -> GradientStats:
    problem, noted = point.problem, list[Tensor]()
    own, names = replace(point, problem=noting_contrast(problem, noted)), problem.trainable
    groups = grouped(plan.pieces, plan.samples, len(plan.pieces), bool(problem.batch_norms))
    others, losses = permuted(problem, batch), list[Tensor]()
    with own.session() as session:
        made = []
        for group in groups:
            found, leaves = forward_pass(session, others, group, names, record=True)
            made.append((leaves, found, noted[-len(found) :]))
            losses += [loss.detach() for loss in found]
        first = [backward_pass(session, f, p, names, retain_graph=True) for p, f, _ in made]
        grams = grams_of_tensors(_by_tensor(plan, first))
        del first  # so that the gradients of both losses are not held at once
        second = [backward_pass(session, f, p, names) for p, _, f in made]
        contrasted = total_gram(_by_tensor(plan, second))
    grams, contrasted, *values = to_host(grams, contrasted, *losses)
    stats = statistics_of(problem, plan, grams, torch.stack(values))
    norms = contrasted.diagonal().sqrt()
    for d, norm in enumerate(norms.tolist()):
        check_norm(norm or 1.0, f"sub-batch {d}")
    return _joined(stats, norms, measures.cosines(contrasted), point)


def _by_tensor(plan: Plan, passes: Sequence[Pass]) -> list[Tensor]:
    """For every tensor, a matrix of gradients with one row per sub-batch, from several passes."""
    parts = zip(*(rows_by_tensor(made.gradients) for made in passes), strict=True)
    found = [own[0] if len(own) == 1 else torch.cat(own) for own in parts]
    return found if plan.simple else [weighted_rows(plan.weights, own) for own in found]


def with_agreement(
    stats: GradientStats, point: Point, batch: Batch, plan: Plan, held: int | None = None
) -> GradientStats:
    """Add the agreement to the statistics that :func:`measure` returned for the same arguments.

    Raises:
        ValueError: If there is one sub-batch only, or the targets are not known.
        GradientError: If the gradients are zero or not finite.
    """
    if len(plan.weights) < 2:
        raise ValueError("The agreement needs at least two sub-batches: `sub_batches = 1`.")
    shared = point.problem.layout.size(batch) if targets_enter_losses_only(point, batch) else 0
    own = replace(point, problem=contrast(point.problem, shared))
    contrasted = measure(own, permuted(point.problem, batch), plan, held)
    return _joined(stats, contrasted.norms, contrasted.cosines, point)


def _joined(stats: GradientStats, norms: Tensor, cosines: Tensor, point: Point) -> GradientStats:
    """Add the agreement, computed from norms and cosines of the loss of :func:`contrast`."""
    check_contrast(norms, stats.norms, point.problem)
    return replace(stats, agreement=float(measures.distinct_mean(cosines)))
