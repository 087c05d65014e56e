"""Whether the samples of a batch see each other, which is tried and not guessed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import batch_size, cut, ragged
from neuroinit.common.errors import out_of_memory
from neuroinit.common.tensors import filled, flatten
from neuroinit.kernels.function_mode import differentiate
from neuroinit.model.problem import Problem


def are_independent(problem: Problem, batch: Any) -> bool:
    """Whether the loss is a mean over samples that don't see each other.

    Tried on a first batch, and again on a first :func:`ragged` one; ``problem.independence`` has
    what was found.
    """
    kind = ragged(batch)
    if kind not in problem.independence:
        problem.independence[kind] = not problem.batch_norms and _tried(problem, batch)
    return problem.independence[kind]


def _tried(problem: Problem, batch: Any) -> bool:
    """:func:`_joins` on as much of the batch as memory allows."""
    while True:
        size, autocast = batch_size(batch), problem.autocast
        try:
            problem.autocast = None  # rounding would look like samples that see each other
            return _joins(problem, batch)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or size <= 2:
                raise
        finally:
            problem.autocast = autocast
        batch = cut(batch, 0, size // 2)


def _joins(problem: Problem, batch: Any) -> bool:
    """Whether the gradients of two parts of a batch make up the gradient of the whole."""
    if batch_size(batch) == 1:
        return True
    size = max(2, batch_size(batch) // problem.ranks.world)  # what a rank is sure to have room for
    batch, first = cut(batch, 0, size), max(1, size // 3)
    with problem.session():
        whole = _gradient(problem, batch, problem.seed)
        left = _gradient(problem, cut(batch, 0, first), problem.seed)
        right = _gradient(problem, cut(batch, first, size), problem.seed + first)
    joined = (first * left + (size - first) * right) / size
    tolerance = 1e-8 if whole.dtype == torch.float64 else 1e-3
    return bool((whole - joined).norm() <= tolerance * whole.norm())


def _gradient(problem: Problem, batch: Any, seed: int) -> Tensor:
    """With the random numbers of a piece of its own, on which samples may depend."""
    theta = problem.theta(problem.trainable)
    return flatten(filled(differentiate([problem.loss(batch, seed)], theta), theta))
