"""Gradients of sub-batches that are spread over ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from neuroinit.common.tensors import flatten
from neuroinit.gradients.plan import RankShare
from neuroinit.model.problem import Problem


def on_every_rank(
    problem: Problem, count: int, share: RankShare, own: Sequence[Tensor], names: Sequence[str]
) -> Iterator[Tensor]:
    """Yield the gradient of every sub-batch on every rank, from the gradients of this rank."""
    if problem.ranks.alone:
        yield from own
        return
    known = dict(zip(share.sub_batches, own, strict=True))
    nothing = zero_gradient(problem, names)
    for d in range(count):
        yield problem.ranks.sum(known.get(d, nothing))


def zero_gradient(problem: Problem, names: Sequence[str]) -> Tensor:
    """A flat gradient of zeros by some parameters."""
    return torch.zeros_like(flatten([problem.start[n] for n in names]))
