"""From sub-batch gradients to the objective, and back to the direction ``v_d = dPhi/dg_d``.

A collector takes in the gradients ``g_1..g_D``, computes the objective ``Phi`` and its derivative,
and then gives the direction of every sub-batch. With several ranks each adds the sub-batches of its
share, and all see the objective of all sub-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from neuroinit.common.tensors import dot, flatten, to_cpu_double, weighted_sum, zeros_if_missing
from neuroinit.gradients.measures import Moments, moments
from neuroinit.gradients.plan import RankShare
from neuroinit.model.finite import check_finite_parts, check_norm, check_zero_norms
from neuroinit.model.problem import Problem

Objective = Callable[[Moments], Tensor]


class MeanDirection:
    """For objectives of the norms and GradCosine: holds one vector, the mean unit gradient.

    Args:
        problem: The model and its loss.
        count: Number of sub-batches ``D`` over all ranks.
        share: This rank's part of the plan.
    """

    def __init__(self, problem: Problem, count: int, share: RankShare) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.norms: list[Tensor] = []
        self.mean: Tensor = torch.zeros(())
        self.summed: list[Tensor] = []  # gradients summed over the ranks of a block

    def add(self, gradient: Tensor) -> None:
        """Add a gradient of this rank's; a zero gradient contributes nothing to the mean."""
        if self.share.blocks:
            gradient = self.problem.ranks.sum(gradient, self.share.blocks)
            self.summed.append(gradient)
        norm = _finite_norm(self.problem, gradient, self.share.sub_batches[len(self.norms)])
        self.norms.append(norm)
        if norm > 0 and self.share.leader:
            self.mean = self.mean + gradient / (norm * self.count)

    def evaluate(self, objective: Objective) -> Tensor:
        """The objective; its derivatives by the norms and the cosine are kept."""
        norms = self._sum_over_ranks().requires_grad_()
        check_zero_norms(norms)
        cosine = to_cpu_double(dot(self.mean, self.mean)).requires_grad_()
        self.moments = Moments(norms.detach(), cosine.detach())
        value, (by_norms, by_cosine) = _differentiate(
            objective(Moments(norms, cosine)), [norms, cosine]
        )
        self.by_norms, self.by_cosine = by_norms.tolist(), float(by_cosine)
        return value

    def _sum_over_ranks(self) -> Tensor:
        """The norms of all sub-batches; the mean becomes that over all of them."""
        ranks = self.problem.ranks
        if ranks.alone:
            return to_cpu_double(torch.stack(self.norms))
        if self.mean.dim() == 0:
            self.mean = _zero_gradient(self.problem, self.problem.differentiated)
        self.mean = ranks.sum(self.mean)
        norms = torch.zeros(self.count, dtype=torch.float64, device="cpu")
        if self.share.leader:
            for d, norm in zip(self.share.sub_batches, self.norms, strict=True):
                norms[d] = to_cpu_double(norm)
        return ranks.sum(norms)

    def direction(self, index: int, gradient: Tensor) -> Tensor:
        """``v_d = Phi_c (2/D) (u - u_d <u_d, u>) / ||g_d|| + Phi_{n_d} u_d``.

        With ``u_d = g_d / ||g_d||``, ``u`` their mean, and the derivatives ``Phi_c`` by the cosine
        and ``Phi_{n_d}`` by the norm.

        Args:
            index: Which of this rank's sub-batches.
            gradient: Its gradient ``g_d``.
        """
        if self.share.blocks:
            gradient = self.summed[index]
        d = self.share.sub_batches[index]
        norm = float(self.moments.norms[d])
        if norm == 0:
            return torch.zeros_like(gradient)
        unit = gradient / norm
        along = float(dot(unit, self.mean))
        weight = 2 * self.by_cosine / (self.count * norm)
        return torch.add(weight * self.mean, unit, alpha=self.by_norms[d] - weight * along)


class AllGradients:
    """For objectives of any entry of the Gram matrix: holds all ``D`` gradients.

    Args:
        problem: The model and its loss.
        count: Number of sub-batches ``D`` over all ranks.
        share: This rank's part of the plan.
    """

    def __init__(self, problem: Problem, count: int, share: RankShare) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.gradients: list[Tensor] = []

    def add(self, gradient: Tensor) -> None:
        """Add a gradient of this rank's."""
        _finite_norm(self.problem, gradient, self.share.sub_batches[len(self.gradients)])
        self.gradients.append(gradient)

    def evaluate(self, objective: Objective) -> Tensor:
        """The objective; its derivative by the Gram matrix is kept."""
        names, own = self.problem.differentiated, self.gradients
        self.gradients = list(on_every_rank(self.problem, self.count, self.share, own, names))
        gram = self.problem.gram(self.gradients).requires_grad_()
        check_zero_norms(gram.diagonal(), tolerated=0)
        self.moments = moments(gram.detach())
        value, (by_gram,) = _differentiate(objective(moments(gram)), [gram])
        self.weights = by_gram + by_gram.T
        return value

    def direction(self, index: int, gradient: Tensor) -> Tensor:
        """``v_d = sum_j (A + A^T)_dj g_j`` with ``A = dPhi/dK``."""
        return weighted_sum(self.weights[self.share.sub_batches[index]], self.gradients)


Collector = MeanDirection | AllGradients


def on_every_rank(
    problem: Problem, count: int, share: RankShare, own: Sequence[Tensor], names: Sequence[str]
) -> Iterator[Tensor]:
    """The gradients of all sub-batches on every rank, one at a time, from those of its share."""
    if problem.ranks.alone:
        yield from own
        return
    known = dict(zip(share.sub_batches, own, strict=True))
    nothing = _zero_gradient(problem, names)
    for d in range(count):
        yield problem.ranks.sum(known.get(d, nothing))


def _zero_gradient(problem: Problem, names: Sequence[str]) -> Tensor:
    return torch.zeros_like(flatten([problem.start[n] for n in names]))


def _differentiate(value: Tensor, inputs: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    if not isinstance(value, Tensor) or value.dim() != 0:
        raise ValueError(f"An objective should return a scalar tensor. Found `{value!r}`.")
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if value.requires_grad:
        found = torch.autograd.grad(value, inputs, allow_unused=True)
    return value.detach(), zeros_if_missing(found, inputs)


def _finite_norm(problem: Problem, gradient: Tensor, d: int) -> Tensor:
    norm = problem.norm(gradient)
    if not torch.isfinite(norm):
        names = problem.differentiated
        parts = torch.split(gradient, [problem.start[n].numel() for n in names])
        check_finite_parts(parts, names, f"The gradient of sub-batch {d}")
        check_norm(float(norm), f"sub-batch {d}")
    return norm
