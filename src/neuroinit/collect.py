"""What is collected of the sub-batch gradients, and the direction that an objective gives each.

``direction(d, g_d)`` is ``v_d``, the derivative of the objective by ``g_d``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neuroinit.errors import NonFiniteError, ZeroGradientError, listed
from neuroinit.measures import Moments, moments
from neuroinit.problem import Problem
from neuroinit.vectors import combine, dot, gram_matrix, narrow, wide

Objective = Callable[[Moments], Tensor]


class MeanDirection:
    """Norms and mean unit gradient: all that an objective of norms and GradCosine needs."""

    def __init__(self, problem: Problem, count: int) -> None:
        self.problem, self.count = problem, count
        self.norms: list[Tensor] = []
        self.mean: Tensor = torch.zeros(())

    def add(self, gradient: Tensor) -> None:
        """Take in one more; a zero gradient has no direction and adds nothing to the mean."""
        norm = _norm(self.problem, gradient, len(self.norms))
        self.norms.append(norm)
        if norm > 0:
            self.mean = self.mean + gradient / (norm * self.count)

    def close(self, objective: Objective) -> Tensor:
        """The objective's value; its derivatives are kept for the directions."""
        norms = narrow(torch.stack(self.norms)).requires_grad_()
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
        norm = float(self.moments.norms[d])
        if norm == 0:
            return torch.zeros_like(gradient)
        unit = gradient / norm
        along = float(dot(unit, self.mean))
        weight = 2 * self.by_cosine / (self.count * norm)
        return torch.add(weight * self.mean, unit, alpha=self.by_norms[d] - weight * along)


class AllGradients:
    """All gradients and their Gram matrix, for objectives of any entry of it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.gradients: list[Tensor] = []

    def add(self, gradient: Tensor) -> None:
        """Take in one more."""
        _norm(self.problem, gradient, len(self.gradients))
        self.gradients.append(gradient)

    def close(self, objective: Objective) -> Tensor:
        """The objective's value; its derivative is kept for the directions."""
        gram = gram_matrix(self.gradients).requires_grad_()
        check_zeros(gram.diagonal(), tolerated=0)
        self.moments = moments(gram.detach())
        value, (by_gram,) = _differentiate(objective(moments(gram)), [gram])
        self.weights = by_gram + by_gram.T
        return value

    def direction(self, d: int, gradient: Tensor) -> Tensor:
        """``v_d = sum_j (A + A^T)_dj g_j`` with ``A = dPhi/dK``."""
        return combine(self.weights[d], self.gradients)


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
    norm: Tensor = torch.linalg.vector_norm(gradient, dtype=wide(gradient))
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
