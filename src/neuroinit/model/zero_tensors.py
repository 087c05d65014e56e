"""All-zero tensors that keep the gradient from others, such as the last gain of a branch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from neuroinit.common.batches import batch_size, cut
from neuroinit.kernels.function_mode import differentiate
from neuroinit.model.fresh_values import Draw
from neuroinit.model.problem import Problem

FEW = 8  # samples are enough to see whether a gradient is exactly zero


def blocked_by_zeros(problem: Problem, batch: Any) -> list[str]:
    """Names of parameters whose gradient is zero, and is not once all-zero tensors are filled.

    A bias only adds, so it blocks nothing; without other all-zero tensors there is nothing to try.
    """
    zeros = [n for n in problem.zeros if not n.endswith("bias")]
    if not zeros:
        return []
    few = cut(batch, 0, min(FEW, batch_size(batch)))
    without = _without_gradient(problem, few, {})
    filled = {n: Draw("normal", 0.01, seed).like(problem.start[n]) for seed, n in enumerate(zeros)}
    still = set(_without_gradient(problem, few, filled)) if without else set()
    return [n for n in without if n not in still]


def _without_gradient(problem: Problem, batch: Any, filled: dict[str, Tensor]) -> list[str]:
    names = problem.trainable
    problem.place(problem.unit_scales, filled)
    with problem.session():
        found = differentiate([problem.loss(batch)], problem.theta(names))
    return [n for n, g in zip(names, found, strict=True) if g is None or not g.any()]
