"""Gradient statistics of a model at its current parameters, as records."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit import measures
from neuroinit.borrow import isolated
from neuroinit.checks import check_choice, check_count, check_overlap
from neuroinit.errors import NonFiniteError
from neuroinit.gradients import check_zeros, gradients
from neuroinit.problem import ComputeLoss, LossFunction, Problem
from neuroinit.split import SPLITS, Plan, batch_size, plan, sub_batches
from neuroinit.vectors import gram_matrix, narrow, slices

BATCH_STATS = ("sub-batch", "batch")


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
    batch: Any,
    loss_fn: LossFunction = F.cross_entropy,
    sub_batches: int | str = 2,
    overlap: float = 0.0,
    split: str = "cover",
    batch_stats: str = "sub-batch",
    compute_loss: ComputeLoss | None = None,
) -> GradientStats:
    """Gradient norm, GradCosine and their kin at the model's current parameters (Alg. 1 and 2).

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

    Returns:
        The statistics, whole model and per parameter tensor.

    Raises:
        ValueError: If an argument is out of range, or a gradient is zero or not finite.

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
        problem = Problem(model, loss_fn, compute_loss)
        problem.place(problem.unit_scales)
        prepared = problem.prepare(batch)
        pieces = make_plan(problem, prepared, sub_batches, overlap, split, batch_stats)
        return measure(problem, prepared, pieces)


def gradsign(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFunction = F.cross_entropy,
    compute_loss: ComputeLoss | None = None,
) -> float:
    """GradSign, the computable score for the density of sample-wise optima (Eq. 1).

    ``sum_k | sum_i sign(g_i,k) |`` over all entries ``k`` and samples ``i``: the more the signs of
    the sample-wise gradients agree, the larger. A model with BatchNorm uses the statistics of the
    whole batch.

    Args:
        model: Any module. It is left as it was.
        batch: ``(inputs, targets)``, or anything with ``compute_loss``.
        loss_fn: ``loss_fn(output, target)``.
        compute_loss: ``compute_loss(model, batch)`` for batches that are no pairs.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> batch = torch.randn(8, 4), torch.randint(3, (8,))
        >>> gradsign(nn.Linear(4, 3), batch) > 0
        True
    """
    with isolated():
        problem = Problem(model, loss_fn, compute_loss)
        problem.place(problem.unit_scales)
        prepared = problem.prepare(batch)
        pieces = make_plan(problem, prepared, "samples", 0.0, "cover", "batch")
        signs: Tensor | float = 0.0
        for gradient in gradients(problem, prepared, pieces, []):
            signs = signs + gradient.sign()
    return float(torch.as_tensor(signs).abs().sum())


def check_split(count: int | str, overlap: float, split: str, batch_stats: str) -> None:
    """Raise for arguments about sub-batches that are out of range."""
    if count != "samples":
        check_count("sub_batches", count, 1, 'or "samples"')
    check_overlap(overlap)
    check_choice("split", split, tuple(SPLITS))
    check_choice("batch_stats", batch_stats, BATCH_STATS)


def make_plan(
    problem: Problem,
    batch: Any,
    count: int | str,
    overlap: float,
    split: str,
    batch_stats: str,
    microbatch: int | None = None,
) -> Plan:
    """The pieces of a batch that are computed, for a model whose samples may see each other."""
    size = batch_size(batch)
    number = size if count == "samples" else int(count)
    intervals = sub_batches(size, number, overlap, split)
    lonely = problem.batch_norms and min(stop - start for start, stop in intervals) == 1
    if lonely and batch_stats == "sub-batch" and size > 1:
        warnings.warn(
            "Sub-batches of one sample have no BatchNorm statistics of their own: those of the "
            "whole batch are used. Say so with `batch_stats='batch'`.",
            stacklevel=3,
        )
        batch_stats = "batch"
    asked = batch_stats == "batch" or microbatch is not None or overlap > 0
    independent = problem.independent(batch) if asked else False
    if microbatch is not None and not independent:
        cause = (
            f"`{problem.batch_norms[0]}`" if problem.batch_norms else "its loss on a first batch"
        )
        raise ValueError(
            f"`microbatch = {microbatch}` needs samples that don't see each other, which {cause} "
            "contradicts. Leave it out, and use more sub-batches to save memory."
        )
    return plan(intervals, independent, microbatch, batch_stats == "batch" and not independent)


def measure(problem: Problem, batch: Any, pieces: Plan) -> GradientStats:
    """The statistics of a prepared batch at the placed scales."""
    losses: list[Tensor] = []
    vectors = list(gradients(problem, batch, pieces, losses))
    gram = gram_matrix(vectors)
    if not torch.isfinite(gram).all():
        bad = gram.diagonal().isfinite().logical_not().nonzero()
        raise NonFiniteError(f"The gradient of sub-batch {int(bad[0])} is not finite.")
    check_zeros(gram.diagonal())
    names = problem.differentiated
    sizes = [t.numel() for t in problem.theta(names)]
    layers = zip(*(slices(vector, sizes) for vector in vectors), strict=True)
    return GradientStats(
        loss=float((pieces.weights @ narrow(torch.stack(losses))).mean()),
        norms=gram.diagonal().sqrt(),
        cosines=measures.cosines(gram),
        layers=[_layer(name, parts) for name, parts in zip(names, layers, strict=True)],
        batch_stats="batch" if pieces.whole else "sub-batch",
    )


def _layer(name: str, parts: Iterable[Tensor]) -> LayerStats:
    """One tensor's record; a tensor without gradient in some sub-batch has no cosine there."""
    gram = gram_matrix(list(parts))
    norms = gram.diagonal().sqrt()
    if norms.min() == 0:
        return LayerStats(
            name, float("nan"), float(norms.mean()), float("inf" if norms.any() else "nan")
        )
    return LayerStats(
        name,
        float(measures.cosines(gram).mean()),
        float(norms.mean()),
        float(norms.max() / norms.min()),
    )
