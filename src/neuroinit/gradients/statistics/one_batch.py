"""Statistics of the gradients of one batch: the public functions."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_instance
from neuroinit.common.layout import Cut, batch_layout
from neuroinit.common.process.random_state import isolated
from neuroinit.common.targets import Targets
from neuroinit.gradients.passes.first_order import gradient_rows
from neuroinit.gradients.plan import Plan, check_split, make_plan
from neuroinit.gradients.statistics.both import with_agreement, with_agreement_in_one_pass
from neuroinit.gradients.statistics.gradient_stats import GradientStats, measure
from neuroinit.gradients.sub_batches import USUAL, usual_count
from neuroinit.model.finite import check_losses, check_norm, explained
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem

DEFAULT_SPLIT = (None, 0.0, "cover", "sub-batch")  # sub_batches, overlap, split, batch_stats


@runtime_checkable
class CutsBatches(Protocol):
    """The part of a method that cuts a batch into sub-batches."""

    def measured(self, problem: Problem, batch: Batch, microbatch: int | None) -> Plan:
        """The plan with which ``result.before`` and ``result.after`` are measured."""
        ...


def gradient_stats(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFunction = F.cross_entropy,
    sub_batches: int | str | None = None,
    overlap: float = 0.0,
    split: str = "cover",
    batch_stats: str = "sub-batch",
    compute_loss: ComputeLoss | None = None,
    cut: Cut | None = None,
    batch_dim: int = 0,
    agreement: bool = False,
    targets: Targets | None = None,
    method: CutsBatches | None = None,
) -> GradientStats:
    """Gradient norms, GradCosine and variance at the model's current parameters (Alg. 1 and 2).

    Every process computes the statistics of its own batch; under torch.distributed nothing is
    exchanged, so one rank can call this function alone.

    Args:
        model: Any module. It is left as it was.
        batch: ``(inputs, targets)``, or anything with ``compute_loss``.
        loss_fn: ``loss_fn(output, target)``: a scalar mean or one loss per sample.
        sub_batches: Number of sub-batches ``D``, or ``"samples"`` for the sample-wise quantities.
            By default 8, as for :class:`NIO`, or half the number of samples if that is smaller.
        overlap: Overlap ratio ``r`` of Eq. 7.
        split: ``"cover"``, ``"paper"`` (Eq. 7) or ``"reference"`` (the authors' code).
        batch_stats: BatchNorm's statistics are those of the ``"sub-batch"`` or of the ``"batch"``.
            Sample-wise quantities of a model with BatchNorm use those of the whole batch.
        compute_loss: ``compute_loss(model, batch)`` for batches that are not pairs.
        cut: As for :func:`optimize`.
        batch_dim: The dimension of samples in tensors.
        agreement: Compute ``stats.agreement``, too, from the same inputs with the targets of other
            samples. This takes extra time: with ``compute_loss``, four more forward passes. It
            needs two sub-batches or more.
        targets: With ``agreement`` and ``compute_loss``: which entry of a batch has the targets, a
            key, an index or a tuple of several; by default ``"labels"``, or 1 for pairs.
        method: Cut the batch as this method does, for example ``NIO()``, so that the numbers
            compare with those of its results; in place of ``sub_batches``, ``overlap``, ``split``
            and ``batch_stats``. Cosines depend on the number and size of the sub-batches. The
            defaults of all four are those of ``NIO()``.

    Returns:
        The statistics, whole model and per parameter tensor.

    Raises:
        TypeError: If an argument is not usable, or there are ``sub_batches`` or the like next to a
            ``method``.
        ValueError: If an argument is out of range, all gradients are zero, or one is not finite.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Linear(4, 3)
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> stats = gradient_stats(model, batch, sub_batches=4)
        >>> stats.norms.shape, stats.layers[0].name
        (torch.Size([4]), 'weight')
    """
    check_split(USUAL if sub_batches is None else sub_batches, overlap, split, batch_stats)
    if method is not None:
        check_instance("method", method, CutsBatches, "a method such as `NIO()`")
        if (sub_batches, overlap, split, batch_stats) != DEFAULT_SPLIT:
            raise TypeError(
                "Found `method` and one of `sub_batches`, `overlap`, `split` and `batch_stats`, "
                "which the method has itself. Pass them to the method, such as "
                "`NIO(sub_batches=4)`, or leave `method` out."
            )
    with isolated():
        layout = batch_layout(cut, batch_dim, targets)
        problem = Problem(model, loss_fn, compute_loss, layout=layout)
        prepared = problem.prepare(batch)
        if method is None:
            count = usual_count(layout.size(prepared)) if sub_batches is None else sub_batches
            plan = make_plan(problem, prepared, count, overlap, split, batch_stats)
        else:
            plan = method.measured(problem, prepared, None)
        point = problem.at(problem.unit_scales)
        found = with_agreement_in_one_pass(point, prepared, plan, None) if agreement else None
        if found is not None:
            return found
        with explained(prepared):
            stats = measure(point, prepared, plan)
        return with_agreement(stats, point, prepared, plan) if agreement else stats


def gradsign(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFunction = F.cross_entropy,
    compute_loss: ComputeLoss | None = None,
    cut: Cut | None = None,
    batch_dim: int = 0,
) -> float:
    """GradSign, the computable score for the density of sample-wise optima (Eq. 1).

    ``sum_k | sum_i sign(g_i,k) |`` over all entries ``k`` and samples ``i``: the more the signs of
    the sample-wise gradients agree, the larger. A model with BatchNorm uses the statistics of the
    whole batch. As :func:`gradient_stats`, it exchanges nothing with other ranks.

    Args:
        model: Any module. It is left as it was.
        batch: ``(inputs, targets)``, or anything with ``compute_loss``.
        loss_fn: ``loss_fn(output, target)``.
        compute_loss: ``compute_loss(model, batch)`` for batches that are not pairs.
        cut: As for :func:`optimize`.
        batch_dim: The dimension of samples in tensors.

    Raises:
        ValueError: If an argument is out of range, or a loss or a gradient is not finite.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> gradsign(nn.Linear(4, 3), batch) > 0
        True
    """
    with isolated():
        layout = batch_layout(cut, batch_dim)
        problem = Problem(model, loss_fn, compute_loss, layout=layout)
        point, prepared = problem.at(problem.unit_scales), problem.prepare(batch)
        plan = make_plan(problem, prepared, "samples", 0.0, "cover", "batch")
        signs = size = torch.zeros((), device=problem.device)
        losses = list[Tensor]()
        for rows in gradient_rows(point, prepared, plan, losses, problem.trainable):
            for gradient in rows:
                signs, size = signs + gradient.sign(), size + gradient.abs().sum()
        with explained(prepared):
            check_losses(torch.stack(losses))
            check_norm(float(size) or 1.0)
    return float(signs.abs().sum())
