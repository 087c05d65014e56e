"""What is collected of the sub-batch gradients, and the direction that an objective gives each.

``direction(d, g_d)`` is ``v_d``, the derivative of the objective by ``g_d``. Of several ranks each
adds the sub-batches of its share, and all see the moments of all sub-batches; ``d`` counts those of
the share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from neuroinit.common.errors import NonFiniteError, ZeroGradientError, listed
from neuroinit.common.tensors import combine, dot, flatten, narrow
from neuroinit.gradients.measures import Moments, moments
from neuroinit.gradients.plan import Share
from neuroinit.model.problem import Problem

Objective = Callable[[Moments], Tensor]


class MeanDirection:
    """Norms and mean unit gradient: all that an objective of norms and GradCosine needs."""

    def __init__(self, problem: Problem, count: int, share: Share) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.norms: list[Tensor] = []
        self.mean: Tensor = torch.zeros(())
        self.joined: list[Tensor] = []

    def add(self, gradient: Tensor) -> None:
        """Take in one more; a zero gradient has no direction and adds nothing to the mean."""
        if self.share.blocks:
            gradient = self.problem.ranks.sum(gradient, self.share.blocks)
            self.joined.append(gradient)
        norm = _norm(self.problem, gradient, self.share.rows[len(self.norms)])
        self.norms.append(norm)
        if norm > 0 and self.share.leader:
            self.mean = self.mean + gradient / (norm * self.count)

    def _meet(self) -> Tensor:
        """The norms of all sub-batches, and the mean over all of them."""
        ranks = self.problem.ranks
        if ranks.alone:
            return narrow(torch.stack(self.norms))
        if self.mean.dim() == 0:
            self.mean = torch.zeros_like(flatten(self.problem.theta(self.problem.differentiated)))
        self.mean = ranks.sum(self.mean)
        norms = torch.zeros(self.count, dtype=torch.float64, device="cpu")
        if self.share.leader:
            for d, norm in zip(self.share.rows, self.norms, strict=True):
                norms[d] = narrow(norm)
        return ranks.sum(norms)

    def close(self, objective: Objective) -> Tensor:
        """The objective's value; its derivatives are kept for the directions."""
        norms = self._meet().requires_grad_()
        check_zeros(norms)
        cosine = narrow(dot(self.mean, self.mean)).requires_grad_()
        self.moments = Moments(norms.detach(), cosine.detach())
        value, (by_norms, by_cosine) = _differentiate(
            objective(Moments(norms, cosine)), [norms, cosine]
        )
        self.by_norms, self.by_cosine = by_norms.tolist(), float(by_cosine)
        return value

    def direction(self, d: int, gradient: Tensor) -> Tensor:
        """``v_d = Phi_c (2/D) (u - u_d <u_d, u>) / ||g_d|| + Phi_{n_d} u_d``, ``u`` the mean."""
        if self.share.blocks:
            gradient = self.joined[d]
        d = self.share.rows[d]
        norm = float(self.moments.norms[d])
        if norm == 0:
            return torch.zeros_like(gradient)
        unit = gradient / norm
        along = float(dot(unit, self.mean))
        weight = 2 * self.by_cosine / (self.count * norm)
        return torch.add(weight * self.mean, unit, alpha=self.by_norms[d] - weight * along)


class AllGradients:
    """All gradients and their Gram matrix, for objectives of any entry of it."""

    def __init__(self, problem: Problem, count: int, share: Share) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.gradients: list[Tensor] = []

    def add(self, gradient: Tensor) -> None:
        """Take in one more."""
        _norm(self.problem, gradient, self.share.rows[len(self.gradients)])
        self.gradients.append(gradient)

    def close(self, objective: Objective) -> Tensor:
        """The objective's value; its derivative is kept for the directions."""
        names, own = self.problem.differentiated, self.gradients
        self.gradients = list(all_rows(self.problem, self.count, self.share, own, names))
        gram = self.problem.gram(self.gradients).requires_grad_()
        check_zeros(gram.diagonal(), tolerated=0)
        self.moments = moments(gram.detach())
        value, (by_gram,) = _differentiate(objective(moments(gram)), [gram])
        self.weights = by_gram + by_gram.T
        return value

    def direction(self, d: int, gradient: Tensor) -> Tensor:
        """``v_d = sum_j (A + A^T)_dj g_j`` with ``A = dPhi/dK``."""
        return combine(self.weights[self.share.rows[d]], self.gradients)


def all_rows(
    problem: Problem, count: int, share: Share, own: Sequence[Tensor], names: Sequence[str]
) -> Iterator[Tensor]:
    """The gradients of all sub-batches on every rank, one at a time, from those of its share."""
    if problem.ranks.alone:
        yield from own
        return
    mine = dict(zip(share.rows, own, strict=True))
    nothing = torch.zeros_like(flatten(problem.theta(names)))
    for d in range(count):
        yield problem.ranks.sum(mine.get(d, nothing))


Collector = MeanDirection | AllGradients


def _differentiate(value: Tensor, inputs: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    if not isinstance(value, Tensor) or value.dim() != 0:
        raise ValueError(f"An objective should return a scalar tensor. Found `{value!r}`.")
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if value.requires_grad:
        found = torch.autograd.grad(value, inputs, allow_unused=True)
    return value.detach(), [
        torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)
    ]


def _norm(problem: Problem, gradient: Tensor, index: int) -> Tensor:
    norm = problem.norm(gradient)
    if not torch.isfinite(norm):
        raise NonFiniteError(
            f"The gradient of sub-batch {index} is not finite in "
            f"{listed(_not_finite(problem, gradient))}. The start is too large: shrink it first, "
            "or compute in a wider dtype with `model.double()`."
        )
    return norm


def check_zeros(norms: Tensor, tolerated: int | None = None) -> None:
    """Raise if more gradients than tolerated are exactly zero; by default, if all are."""
    zero = [d for d, norm in enumerate(norms.tolist()) if norm == 0]
    if len(zero) > (len(norms) - 1 if tolerated is None else tolerated):
        raise ZeroGradientError(
            f"The gradient of sub-batch {zero[0]} is exactly zero, so it has no direction. "
            "The loss does not feel the parameters: look for dead activations, a saturated output "
            "or all-zero tensors (`reinit_zeros=0.01` gives these a small start)."
        )


def _not_finite(problem: Problem, gradient: Tensor) -> list[str]:
    names = problem.differentiated
    parts = torch.split(gradient, [t.numel() for t in problem.theta(names)])
    return [n for n, part in zip(names, parts, strict=True) if not torch.isfinite(part).all()]
