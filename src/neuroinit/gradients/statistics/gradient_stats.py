"""Gradient statistics of a model: norms, cosines, variance, whole and per parameter tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_number
from neuroinit.common.tensors import tensor_grams, to_cpu_double, to_host
from neuroinit.gradients import measures
from neuroinit.gradients.passes.first_order import gradient_rows
from neuroinit.gradients.plan import Plan
from neuroinit.model.finite import check_finite_parts, check_losses, check_zero_norms
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

ALL = 2**62  # entries of gradients held at once: no limit
FEW = 2**23  # entries of gradients that are held at once in any case: 32 MB in float32


@dataclass(frozen=True)
class Record:
    """A frozen dataclass whose fields can also be read as ``record["field"]``."""

    def __getitem__(self, key: str) -> Any:  # the type of the field, which the key decides
        if key not in self.keys():
            raise KeyError(key)
        return getattr(self, key)

    def keys(self) -> list[str]:
        """Names of the fields; makes ``dict(record)`` work."""
        return [f.name for f in fields(self)]


@dataclass(frozen=True)
class LayerStats(Record):
    """Statistics of one parameter tensor's slice of the sub-batch gradients (Fig. 3 a, c).

    Example:
        >>> layer = LayerStats("head.weight", 0.3, 1.2, 1.5)
        >>> layer.name, layer["norm"]
        ('head.weight', 1.2)
    """

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
        layers: One record per parameter tensor.
        batch_stats: BatchNorm used the statistics of the ``"sub-batch"`` or of the ``"batch"``.
        agreement: Mean cosine of the pairs ``i != j`` after subtracting the gradient with permuted
            targets: about ``-1/(D - 1)`` for a network that ignores its inputs, 0 if the gradients
            are orthogonal, 1 if all agree. ``nan`` if it was not computed.

    Example:
        >>> import neuroinit as ni
        >>> _ = torch.manual_seed(0)
        >>> batch = torch.randn(16, 4), torch.randint(3, (16,))
        >>> stats = ni.gradient_stats(torch.nn.Linear(4, 3), batch, sub_batches=4)
        >>> tuple(stats.norms.shape), tuple(stats.cosines.shape), [x.name for x in stats.layers]
        ((4,), (4, 4), ['weight', 'bias'])
    """

    loss: float
    norms: Tensor
    cosines: Tensor
    layers: list[LayerStats]
    batch_stats: str
    agreement: float = math.nan

    @property
    def cosine(self) -> float:
        """The mean cosine over all pairs, GradCosine (Alg. 1, line 6)."""
        return float(self.cosines.mean())

    @property
    def norm(self) -> float:
        """The mean of the norms (Alg. 1, line 4)."""
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
        """The bound of Eq. 4 for a smoothness ``H``."""
        check_number("smoothness", smoothness, 0.0)
        return float(measures.theta(self.norms, self.cosines, smoothness))

    def __repr__(self) -> str:
        whole = ", BatchNorm over the whole batch" if self.batch_stats == "batch" else ""
        agreement = "" if math.isnan(self.agreement) else f"agreement={self.agreement:.4f}, "
        return (
            f"GradientStats({len(self.norms)} sub-batches{whole}: loss={self.loss:.4g}, "
            f"cosine={self.cosine:.4f}, {agreement}norm={self.norm:.4g}, "
            f"norm_ratio={self.norm_ratio:.3g}, "
            f"variance={self.variance:.4g}, {len(self.layers)} layers)"
        )


def measure(point: Point, batch: Batch, plan: Plan, held: int | None = None) -> GradientStats:
    """The statistics of a batch at a point.

    Args:
        point: The parameter values at which the model is evaluated.
        batch: A prepared batch.
        plan: Its pieces.
        held: Most gradients that are held at once, or as many as have ``FEW`` entries; the others
            are computed again for every group. ``None`` holds all.
    """
    if held is None or held >= len(plan.weights):
        return statistics_of(point.problem, plan, *_grams(point, batch, plan))
    return statistics_of(point.problem, plan, *_grams_in_groups(point, batch, plan, held))


def statistics_of(problem: Problem, plan: Plan, grams: Tensor, values: Tensor) -> GradientStats:
    """The statistics from the Gram matrices of all tensors and the losses of the pieces.

    Raises:
        GradientError: If all gradients are zero, or one is not finite.
    """
    names = problem.trainable
    check_losses(values)
    grams = problem.sum_over_shards(grams, names)
    gram = grams.sum(0)
    if not torch.isfinite(gram).all():
        check_finite_parts(list(grams), names)
    check_zero_norms(gram.diagonal())
    return GradientStats(
        loss=float((plan.weights @ values).mean()),
        norms=gram.diagonal().sqrt(),
        cosines=measures.cosines(gram),
        layers=_layers(names, grams),
        batch_stats="batch" if plan.one_forward else "sub-batch",
    )


def _grams(point: Point, batch: Batch, plan: Plan) -> tuple[Tensor, Tensor]:
    """The Gram matrix of every tensor and the losses of the pieces; all gradients are held."""
    names, losses = point.problem.trainable, list[Tensor]()
    found = list(gradient_rows(point, batch, plan, losses, names, entries=ALL))
    rows = found[0] if len(found) == 1 else torch.cat(found)
    grams, *values = to_host(tensor_grams(rows, _sizes(point)), *losses)
    return grams, torch.stack(values)


def _grams_in_groups(point: Point, batch: Batch, plan: Plan, held: int) -> tuple[Tensor, Tensor]:
    """As :func:`_grams`; only the gradients of ``held`` sub-batches are held at once."""
    names, sizes, count = point.problem.trainable, _sizes(point), len(plan.weights)
    held = max(held, FEW // sum(sizes))
    grams = torch.zeros(len(names), count, count, dtype=torch.float64, device="cpu")
    losses: list[Tensor] = []
    for first in range(0, count, held):
        group, rows, losses = slice(first, min(first + held, count)), list[Tensor](), []
        found = gradient_rows(point, batch, plan, losses, names)
        for d, gradient in enumerate(gradient for matrix in found for gradient in matrix):
            if group.start <= d < group.stop:
                rows.append(gradient)
            if d == group.stop - 1:
                own = torch.stack(rows)
                grams[:, group, group] = to_cpu_double(tensor_grams(own, sizes))
            elif d >= group.stop:
                products = to_cpu_double(tensor_grams(own, sizes, gradient[None]))[:, :, 0]
                grams[:, group, d] = grams[:, d, group] = products
    return grams, to_cpu_double(torch.stack(losses))


def _sizes(point: Point) -> list[int]:
    return [t.numel() for t in point.tensors(point.problem.trainable)]


def _layers(names: list[str], grams: Tensor) -> list[LayerStats]:
    """One record per tensor; its cosine is ``nan`` if its gradient is zero in a sub-batch."""
    norms = grams.diagonal(dim1=1, dim2=2).sqrt()
    least, most = norms.amin(1), norms.amax(1)
    cosines = torch.where(least > 0, measures.cosines(grams).mean((1, 2)), math.nan)
    columns = cosines, norms.mean(1), most / least
    values = zip(*(column.tolist() for column in columns), strict=True)
    return [LayerStats(name, *own) for name, own in zip(names, values, strict=True)]
