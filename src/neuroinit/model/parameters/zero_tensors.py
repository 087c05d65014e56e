"""All-zero tensors that block the gradient of others, such as a residual branch's last gain."""

from __future__ import annotations

from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.problem import Problem

SAMPLES = 8  # enough to see whether a gradient is exactly zero


def blocked_by_zeros(problem: Problem, batch: Batch) -> list[str]:
    """Names of parameters whose gradient is zero only because other tensors are all zero.

    Tested by replacing all-zero tensors with small values. Biases are not replaced: they block no
    gradient.
    """
    zeros = [n for n in problem.zeros if not n.endswith("bias")]
    if not zeros:
        return []
    few = problem.layout.cut(batch, 0, min(SAMPLES, problem.layout.size(batch)))
    without = _without_gradient(problem, few, {})
    filled = {n: Draw("normal", 0.01, seed).like(problem.start[n]) for seed, n in enumerate(zeros)}
    still = set(_without_gradient(problem, few, filled)) if without else set()
    return [n for n in without if n not in still]


def _without_gradient(problem: Problem, batch: Batch, filled: dict[str, Tensor]) -> list[str]:
    """Names of trainable parameters whose gradient is exactly zero."""
    names = problem.trainable
    point = problem.at(problem.unit_scales, filled)
    with point.session() as session:
        found = session.gradient(session.loss(batch), names)
    return [n for n, g in zip(names, found, strict=True) if not g.any()]
