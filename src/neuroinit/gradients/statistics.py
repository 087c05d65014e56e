"""Gradient statistics of a model: norms, cosines, variance, whole and per parameter tensor."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.layout import Cut, batch_layout
from neuroinit.common.random_state import isolated
from neuroinit.common.tensors import gram_matrix, to_cpu_double
from neuroinit.gradients import measures
from neuroinit.gradients.first_order import gradients
from neuroinit.gradients.plan import Plan, check_split, make_plan
from neuroinit.model.finite import check_finite_parts, check_zero_norms
from neuroinit.model.point import Point
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem


class Record:
    """A frozen dataclass whose fields can also be read as ``record["field"]``."""

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys():
            raise KeyError(key)
        return getattr(self, key)

    def keys(self) -> list[str]:
        """Names of the fields; makes ``dict(record)`` work."""
        return [f.name for f in fields(self)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class LayerStats(Record):
    """Statistics of one parameter tensor's slice of the sub-batch gradients (Fig. 3 a, c)."""

    name: str
    cosine: float
    norm: float
    norm_ratio: float


@dataclass(frozen=True, eq=False, repr=False)
class GradientStats:
    """Statistics of the gradients ``g_1..g_D`` of a batch's sub-batches.

    Args:
        loss: Mean of the sub-batch losses.
        norms: ``||g_d||``, shape ``(D,)``.
        cosines: ``cos(g_i, g_j)``, shape ``(D, D)``.
        layers: One record a parameter tensor.
        batch_stats: Which samples BatchNorm's statistics were taken of.
    """

    loss: float
    norms: Tensor
    cosines: Tensor
    layers: list[LayerStats]
    batch_stats: str

    @property
    def cosine(self) -> float:
        """GradCosine: the mean cosine over all pairs (Alg. 1, line 6)."""
        return float(self.cosines.mean())

    @property
    def norm(self) -> float:
        """Gradient norm: the mean of the norms (Alg. 1, line 4)."""
        return float(self.norms.mean())

    @property
    def norm_max(self) -> float:
        """The largest norm."""
        return float(self.norms.max())

    @property
    def norm_min(self) -> float:
        """The smallest norm."""
        return float(self.norms.min())

    @property
    def norm_ratio(self) -> float:
        """Largest norm over smallest (Fig. 3)."""
        return self.norm_max / self.norm_min if self.norm_min > 0 else float("inf")

    @property
    def variance(self) -> float:
        """Gradient variance (Sec. 6.3)."""
        gram = self.cosines * self.norms[:, None] * self.norms[None, :]
        return float(measures.variance(gram))

    def theta(self, smoothness: float = 1.0) -> float:
        """The bound of Eq. 5 for a smoothness ``H``."""
        return float(measures.theta(self.norms, self.cosines, smoothness))

    def __repr__(self) -> str:
        whole = ", BatchNorm over the whole batch" if self.batch_stats == "batch" else ""
        return (
            f"GradientStats({len(self.norms)} sub-batches{whole}: loss={self.loss:.4g}, "
            f"cosine={self.cosine:.4f}, norm={self.norm:.4g}, norm_ratio={self.norm_ratio:.3g}, "
            f"variance={self.variance:.4g}, {len(self.layers)} layers)"
        )


def gradient_stats(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFunction = F.cross_entropy,
    sub_batches: int | str = 2,
    overlap: float = 0.0,
    split: str = "cover",
    batch_stats: str = "sub-batch",
    compute_loss: ComputeLoss | None = None,
    cut: Cut | None = None,
    batch_dim: int = 0,
) -> GradientStats:
    """Gradient norms, GradCosine and variance at the model's current parameters (Alg. 1 and 2).

    Every process computes the statistics of its own batch; under torch.distributed nothing is
    exchanged, so one rank can call this function alone.

    Args:
        model: Any module. It is left as it was.
        batch: ``(inputs, targets)``, or anything with ``compute_loss``.
        loss_fn: ``loss_fn(output, target)``: a scalar mean or one loss a sample.
        sub_batches: Number of sub-batches ``D``, or ``"samples"`` for the sample-wise quantities.
        overlap: Overlap ratio ``r`` of Eq. 8.
        split: ``"cover"``, ``"paper"`` (Eq. 8) or ``"reference"`` (the authors' code).
        batch_stats: BatchNorm's statistics are those of the ``"sub-batch"`` or of the ``"batch"``.
            Sample-wise quantities of a model with BatchNorm use those of the whole batch.
        compute_loss: ``compute_loss(model, batch)`` for batches that are no pairs.
        cut: As for :func:`optimize`.
        batch_dim: The dimension of samples in tensors.

    Returns:
        The statistics, whole model and per parameter tensor.

    Raises:
        ValueError: If an argument is out of range, all gradients are zero, or one is not finite.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Linear(4, 3)
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> stats = gradient_stats(model, batch, sub_batches=4)
        >>> stats.norms.shape, stats.layers[0].name
        (torch.Size([4]), 'weight')
    """
    check_split(sub_batches, overlap, split, batch_stats)
    with isolated():
        layout = batch_layout(cut, batch_dim)
        problem = Problem(model, loss_fn, compute_loss, layout=layout)
        prepared = problem.prepare(batch)
        plan = make_plan(problem, prepared, sub_batches, overlap, split, batch_stats)
        return measure(problem.at(problem.unit_scales), prepared, plan)


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
        compute_loss: ``compute_loss(model, batch)`` for batches that are no pairs.
        cut: As for :func:`optimize`.
        batch_dim: The dimension of samples in tensors.

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
        signs: Tensor | float = 0.0
        for gradient in gradients(point, prepared, plan, [], problem.trainable):
            signs = signs + gradient.sign()
    return float(torch.as_tensor(signs).abs().sum())


def measure(point: Point, batch: Batch, plan: Plan, held: int | None = None) -> GradientStats:
    """The statistics of a batch at a point.

    Args:
        point: Where the parameters stand.
        batch: A prepared batch.
        plan: Its pieces.
        held: Most gradients that are held at once; the others are computed again for every group.
            ``None`` holds all.
    """
    problem, count = point.problem, len(plan.weights)
    names = problem.trainable
    grams = torch.zeros(len(names), count, count, dtype=torch.float64, device="cpu")
    losses: list[Tensor] = []
    held = held or count
    for first in range(0, count, held):
        losses = _fill(point, batch, plan, grams, range(first, min(first + held, count)))
    grams = problem.sum_over_shards(grams, names)
    gram = grams.sum(0)
    check_finite_parts(list(grams), names)
    check_zero_norms(gram.diagonal())
    return GradientStats(
        loss=float((plan.weights @ to_cpu_double(torch.stack(losses))).mean()),
        norms=gram.diagonal().sqrt(),
        cosines=measures.cosines(gram),
        layers=[_layer(name, own) for name, own in zip(names, grams, strict=True)],
        batch_stats="batch" if plan.one_forward else "sub-batch",
    )


def _fill(point: Point, batch: Batch, plan: Plan, grams: Tensor, group: range) -> list[Tensor]:
    """Fill the Gram matrices of every tensor for a group of sub-batches; returns the losses.

    Only the gradients of the group are held.
    """
    names = point.problem.trainable
    sizes = [t.numel() for t in point.tensors(names)]
    losses: list[Tensor] = []
    held: list[tuple[Tensor, ...]] = []
    for d, gradient in enumerate(gradients(point, batch, plan, losses, names)):
        parts = torch.split(gradient, sizes)
        if d in group:
            held.append(parts)
        if d < group.start:
            continue
        for k, part in enumerate(parts):
            products = gram_matrix([own[k] for own in held], [part])[:, 0]
            known = slice(group.start, group.start + len(held))
            grams[k, known, d] = grams[k, d, known] = products
    return losses


def _layer(name: str, gram: Tensor) -> LayerStats:
    """The record of one tensor; the cosine is ``nan`` if its gradient is zero in a sub-batch."""
    norms = gram.diagonal().sqrt()
    if norms.min() == 0:
        ratio = float("inf" if norms.any() else "nan")
        return LayerStats(name, float("nan"), float(norms.mean()), ratio)
    return LayerStats(
        name,
        float(measures.cosines(gram).mean()),
        float(norms.mean()),
        float(norms.max() / norms.min()),
    )
