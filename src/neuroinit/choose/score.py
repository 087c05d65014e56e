"""Scores of an untrained network, for ranking architectures without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.common.batches import Batch
from neuroinit.common.layout import BatchLayout, Cut, batch_layout
from neuroinit.common.process.random_state import isolated
from neuroinit.common.targets import Targets
from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.gradients.statistics.one_batch import gradient_stats, gradsign
from neuroinit.gradients.sub_batches import USUAL
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem


def score(
    model: nn.Module,
    batch: Batch,
    metrics: Sequence[str] | None = None,
    loss_fn: LossFunction = F.cross_entropy,
    compute_loss: ComputeLoss | None = None,
    targets: Targets | None = None,
    cut: Cut | None = None,
    batch_dim: int = 0,
) -> dict[str, float]:
    """Zero-cost proxies of a network at its initialization, from one batch.

    ==============  ====================================================================  =========
    metric          what it is                                                            better is
    ==============  ====================================================================  =========
    ``gradcosine``  mean cosine of the sample-wise gradients (Alg. 1)                     higher
    ``agreement``   cosine of 8 sub-batches after subtracting permuted targets            higher
    ``gradsign``    agreement of their signs, ``sum_k |sum_i sign(g_i,k)|`` (Eq. 1)       higher
    ``grad_norm``   length of the gradient of the whole batch                             higher
    ``theta``       the bound of Eq. 4 with ``H = 1``, sample-wise                        lower
    ``parameters``  number of trainable parameters                                        higher
    ``flops``       floating-point operations of a forward pass, per sample               higher
    ==============  ====================================================================  =========

    "Better" is the direction in which a metric is commonly used. Whether it holds for your networks
    is an empirical question, see ``docs/evidence/ranking.md``.

    Args:
        model: Any module. It is left as it was.
        batch: ``(inputs, targets)``, or anything with ``compute_loss``.
        metrics: Names of metrics; all by default. Sample-wise metrics other than ``gradsign`` share
            one computation of the gradients.
        loss_fn: ``loss_fn(output, target)``.
        compute_loss: ``compute_loss(model, batch)`` for batches that are not pairs.
        targets: For ``agreement`` with ``compute_loss``: which entry of a batch has the targets; by
            default ``"labels"``, or 1 for pairs. If all targets are equal, the agreement is nan.
        cut: As for :func:`gradient_stats`.
        batch_dim: As for :func:`gradient_stats`.

    Returns:
        Metric -> value. A sample whose gradient is exactly zero makes ``theta`` infinite; a loss
        that takes a gradient itself makes ``flops`` nan.

    Raises:
        ValueError: If a metric is unknown, or a gradient is not finite.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> score(nn.Linear(4, 3), batch, metrics=["parameters", "flops"])
        {'parameters': 15.0, 'flops': 24.0}
    """
    chosen = list(METRICS) if metrics is None else _checked(metrics)
    scored = _ScoredModel(
        model, batch, loss_fn, compute_loss, batch_layout(cut, batch_dim, targets)
    )
    return {name: METRICS[name](scored) for name in chosen}


class _ScoredModel:
    """A model and its batch; sample-wise statistics are computed at most once."""

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        loss_fn: LossFunction,
        compute_loss: ComputeLoss | None,
        layout: BatchLayout,
    ) -> None:
        self.model, self.batch, self.layout = model, batch, layout
        self.loss_fn, self.compute_loss = loss_fn, compute_loss

    @cached_property
    def samples(self) -> GradientStats:
        """Statistics of the sample-wise gradients; BatchNorm sees the whole batch."""
        return self.stats("samples")

    def stats(self, sub_batches: int | str, agreement: bool = False) -> GradientStats:
        """Statistics of the gradients of ``sub_batches`` sub-batches."""
        return gradient_stats(
            self.model,
            self.batch,
            self.loss_fn,
            sub_batches=sub_batches,
            batch_stats="batch",
            compute_loss=self.compute_loss,
            agreement=agreement,
            cut=self.layout.custom,
            batch_dim=self.layout.dim,
            targets=self.layout.targets,
        )


def _agreement(scored: _ScoredModel) -> float:
    count = min(USUAL, scored.layout.size(scored.batch))
    try:
        return scored.stats(count, agreement=True).agreement
    except ValueError:  # the targets are not known, or are all equal
        return math.nan


def _gradsign(scored: _ScoredModel) -> float:
    layout = scored.layout
    return gradsign(
        scored.model, scored.batch, scored.loss_fn, scored.compute_loss, layout.custom, layout.dim
    )


def _parameters(scored: _ScoredModel) -> float:
    return float(sum(p.numel() for p in scored.model.parameters() if p.requires_grad))


def _flops(scored: _ScoredModel) -> float:
    """One forward pass of the batch, counted by torch."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and rarely needed

    with isolated():
        problem = Problem(scored.model, scored.loss_fn, scored.compute_loss, layout=scored.layout)
        point, prepared = problem.at(problem.unit_scales), problem.prepare(scored.batch)
        problem.traits.seed_passes()  # a pass that draws random numbers is not repeated
        with point.session(second_order=True) as session:  # torch does not count fused attention
            try:
                with torch.no_grad(), FlopCounterMode(display=False) as counter:
                    session.loss(prepared)
            except RuntimeError:  # a loss that takes a gradient itself cannot be counted
                session.loss(prepared)  # raises any other error again
                return math.nan
    return float(counter.get_total_flops() / problem.layout.size(prepared))


METRICS: dict[str, Callable[[_ScoredModel], float]] = {
    "gradcosine": lambda scored: scored.samples.cosine,
    "agreement": _agreement,
    "gradsign": _gradsign,
    "grad_norm": lambda scored: scored.stats(1).norm,
    "theta": lambda scored: scored.samples.theta(),
    "parameters": _parameters,
    "flops": _flops,
}


def _checked(metrics: Sequence[str]) -> list[str]:
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        known = ", ".join(repr(name) for name in METRICS)
        raise ValueError(
            f"Parameter `metrics` should be some of {known}. Found `metrics = {metrics!r}`."
        )
    return names
