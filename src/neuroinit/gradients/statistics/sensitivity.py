"""How much a loss depends on every tensor, from first-order gradients alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.tensors import flatten, sum_dtype, tensor_grams, to_host
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.passes.first_order import gradient_rows
from neuroinit.gradients.plan import Plan
from neuroinit.model.finite import check_losses, check_norm, check_zero_norms
from neuroinit.model.point import Point

TINY = 1e-300  # avoids a division by zero
HELD = 2**26  # most entries of gradients that are held at once


@dataclass(frozen=True)
class Sensitivity:
    """The mean gradient ``g`` of a batch, tensor by tensor.

    Args:
        loss: Mean of the sub-batch losses.
        moments: Norms and GradCosine of the sub-batch gradients.
        norms: ``||g_k||`` of every scaled tensor, float64 on the CPU.
        values: ``||theta_k||`` of every scaled tensor.
        squared: An estimate of ``||g||^2`` without the noise of the batch: the mean of
            ``<g_i, g_j>`` over ``i != j``, or 0 if that is negative. With one sub-batch it is
            ``||g||^2``, noise included.
        absolute: ``sum |g|`` over all entries, times ``sqrt(squared) / ||g||``.
    """

    loss: float
    moments: Moments
    norms: Tensor
    values: Tensor
    squared: float
    absolute: float

    @property
    def by_tensor(self) -> Tensor:
        """``||theta_k|| ||g_k||``: to first order, the change of the loss per relative change.

        If tensor k moves by ``eps ||theta_k||``, the loss changes by at most ``eps`` times this.
        It does not depend on the units of a tensor, as a gradient norm does.
        """
        return self.values * self.norms


def sensitivity(point: Point, batch: Batch, plan: Plan) -> Sensitivity:
    """The loss of a batch and the norm of its gradient by every tensor.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.

    Raises:
        GradientError: If all gradients are zero, or one is not finite.
    """
    problem, count, names = point.problem, len(plan.weights), point.problem.differentiated
    losses: list[Tensor] = []
    norms: list[Tensor] = []
    sums: Tensor | float = 0.0  # row 0: mean of g_d / ||g_d||; row 1: mean of g_d
    for rows in gradient_rows(point, batch, plan, losses, names, HELD):
        norms.append(problem.norms(rows))
        lengths = torch.where(norms[-1] > 0, norms[-1], 1.0)
        weights = torch.stack([1 / lengths, torch.ones_like(lengths)]) / count
        sums = sums + weights.to(rows) @ rows
    sums = torch.as_tensor(sums, device=norms[0].device)
    sizes = [t.numel() for t in point.tensors(names)]
    absolute = torch.stack(
        [part.abs().sum(dtype=sum_dtype(sums)) for part in torch.split(sums[1], sizes)]
    )
    lengths = flatten(torch._foreach_norm(point.tensors(problem.scaled)))
    grams = tensor_grams(sums, sizes)
    *all_norms, grams, absolute, lengths, values = to_host(
        *norms, grams, absolute, lengths, torch.stack(losses)
    )
    return _sensitivity(point, plan, torch.cat(all_norms), grams, absolute, lengths, values)


def _sensitivity(
    point: Point,
    plan: Plan,
    norms: Tensor,
    grams: Tensor,
    absolute: Tensor,
    lengths: Tensor,
    losses: Tensor,
) -> Sensitivity:
    """Check what was measured, now on the CPU, and sum it over shards."""
    for d, norm in enumerate(norms.tolist()):
        check_norm(norm or 1.0, f"sub-batch {d}")
    check_losses(losses)
    check_zero_norms(norms)
    problem = point.problem
    names, scaled, over_shards = problem.differentiated, problem.scaled, problem.sum_over_shards
    grams = over_shards(grams, names)
    squares, absolute = grams[:, 1, 1], over_shards(absolute, names).sum()
    squared, total = _without_noise(float(squares.sum()), norms), float(squares.sum())
    own = dict(zip(names, squares.sqrt().tolist(), strict=True))
    return Sensitivity(
        loss=float((plan.weights @ losses).mean()),
        moments=Moments(norms, grams[:, 0, 0].sum()),
        norms=torch.tensor([own.get(n, 0.0) for n in scaled], dtype=torch.float64, device="cpu"),
        values=over_shards(lengths.square(), scaled).sqrt(),
        squared=squared,
        absolute=float(absolute) * math.sqrt(squared / max(total, TINY)),
    )


def _without_noise(squared: float, norms: Tensor) -> float:
    """The mean of ``<g_i, g_j>`` over ``i != j``, from ``||mean_d g_d||^2`` and the norms."""
    count = len(norms)
    if count == 1:
        return squared
    return max(0.0, (count * squared - float(norms.square().mean())) / (count - 1))
