"""From sub-batch gradients to the objective and its derivative by their norms or products.

A collector receives the gradients ``g_1..g_D`` and computes the objective ``Phi``; the result,
:class:`Directions`, computes the direction ``v_d = dPhi/dg_d`` of every sub-batch. With several
ranks, each rank adds the gradients of its share of the sub-batches; the objective is that of all
sub-batches on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neuroinit.common.tensors import (
    dot,
    gram_matrix,
    to_cpu_double,
    to_host,
    zeros_if_missing,
)
from neuroinit.gradients.directions import AllDirections, MeanDirections
from neuroinit.gradients.measures import Moments, moments
from neuroinit.gradients.over_ranks import on_every_rank, zero_gradient
from neuroinit.gradients.plan import RankShare
from neuroinit.model.finite import check_finite_parts, check_losses, check_norm, check_zero_norms
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
        self.mean: Tensor | None = None
        self.summed: list[Tensor] = []  # gradients summed over the ranks of a block

    def add(self, gradients: Tensor) -> None:
        """Add gradients of this rank's sub-batches, shape ``(rows, parameters)``."""
        if self.share.blocks:
            gradients = self.problem.ranks.sum(gradients, self.share.blocks)
            self.summed.append(gradients)
        self.add_blocks([gradients])

    def add_blocks(self, blocks: Sequence[Tensor]) -> None:
        """As :meth:`add`, with the parameters spread over several matrices, in order.

        A zero row adds nothing to the mean. A row that is not finite makes the mean ``nan`` in the
        same entries.
        """
        norms = self.problem.norms(blocks[0])
        if len(blocks) > 1:
            norms = torch.stack([self.problem.norms(own) for own in blocks]).square().sum(0).sqrt()
        self.norms.append(norms)
        if self.share.leader:
            usable = torch.isfinite(norms) & (norms > 0)
            factors = torch.where(usable, 1 / (norms * self.count), 0.0)
            parts = [torch.mv(own.T, factors.to(own)) for own in blocks]
            part = parts[0] if len(parts) == 1 else torch.cat(parts)
            self.mean = part if self.mean is None else self.mean + part

    def evaluate(self, objective: Objective, losses: Sequence[Tensor] = ()) -> MeanDirections:
        """Compute the objective and its derivatives by the norms and the cosine.

        Args:
            objective: Function of :class:`Moments`.
            losses: The losses of the pieces. They are checked first.

        Raises:
            NonFiniteError: If a loss or a gradient is not finite.
            ZeroGradientError: If all gradients are zero.
        """
        mean, own_losses, norms, cosine = self._reduced(losses)
        check_zero_norms(norms)
        inputs = [norms.clone().requires_grad_(), cosine.clone().requires_grad_()]
        value, (by_norms, by_cosine) = _differentiate(
            objective(Moments(inputs[0], inputs[1])), inputs
        )
        known = Moments(norms, cosine)
        summed = torch.cat(self.summed) if self.summed else None
        return MeanDirections(
            value, known, own_losses, self.share, mean, by_norms, float(by_cosine), summed
        )

    def _reduced(self, losses: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The mean unit gradient, this rank's losses, and the norms and GradCosine of all ranks."""
        ranks, mean = self.problem.ranks, self.mean
        if mean is None:
            mean = zero_gradient(self.problem, self.problem.differentiated)
        cosine, *found = to_host(dot(mean, mean), *losses, *self.norms)
        own_losses, norms = _joined(found[: len(losses)]), _joined(found[len(losses) :])
        check_losses(own_losses)
        _check_norms(self, norms, mean.expand(len(norms), -1))
        if ranks.alone:
            return mean, own_losses, norms, cosine
        mean = ranks.sum(mean)
        every = torch.zeros(self.count, dtype=torch.float64, device="cpu")
        if self.share.leader:
            every[list(self.share.sub_batches)] = norms
        return mean, own_losses, ranks.sum(every), to_cpu_double(dot(mean, mean))


class AllGradients:
    """For objectives of any entry of the Gram matrix: holds all ``D`` gradients.

    Args:
        problem: The model and its loss.
        count: Number of sub-batches ``D`` over all ranks.
        share: This rank's part of the plan.
    """

    def __init__(self, problem: Problem, count: int, share: RankShare) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.added: list[Tensor] = []

    def add(self, gradients: Tensor) -> None:
        """Add gradients of this rank's sub-batches, shape ``(rows, parameters)``."""
        self.added.append(gradients)

    def evaluate(self, objective: Objective, losses: Sequence[Tensor] = ()) -> AllDirections:
        """As in ``MeanDirection``, with the derivative of the objective by the Gram matrix."""
        gradients, own_losses, gram = self._reduced(losses)
        check_zero_norms(gram.diagonal(), tolerated=0)
        leaf = gram.clone().requires_grad_()
        value, (by_gram,) = _differentiate(objective(moments(leaf)), [leaf])
        weights = by_gram + by_gram.T
        return AllDirections(value, moments(gram), own_losses, self.share, gradients, weights)

    def _reduced(self, losses: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of all ranks, this rank's losses, and the Gram matrix on the CPU."""
        problem, added = self.problem, self.added
        self.added = []
        gradients = added[0] if len(added) == 1 else torch.cat(added) if added else None
        if gradients is not None and problem.ranks.alone and not problem.sharded:
            gram, *on_host = to_host(gram_matrix(gradients), *losses)
            check_losses(_joined(on_host))
            _check_norms(self, gram.diagonal().sqrt(), gradients)
            return gradients, _joined(on_host), gram
        rows, own_losses = list[Tensor](), _NOTHING
        if gradients is not None:
            norms, *on_host = to_host(problem.norms(gradients), *losses)
            rows, own_losses = list(gradients), _joined(on_host)
            check_losses(own_losses)
            _check_norms(self, norms, gradients)
        names = problem.differentiated
        every = torch.stack(list(on_every_rank(problem, self.count, self.share, rows, names)))
        return every, own_losses, problem.gram(every)


Collector = MeanDirection | AllGradients
_NOTHING = torch.zeros(0, dtype=torch.float64, device="cpu")


def _joined(values: Sequence[Tensor]) -> Tensor:
    """Concatenate scalars and vectors to one vector."""
    return torch.cat([v.reshape(-1) for v in values]) if values else _NOTHING


def _differentiate(value: Tensor, inputs: list[Tensor]) -> tuple[float, tuple[Tensor, ...]]:
    if not isinstance(value, Tensor) or value.dim() != 0:
        raise ValueError(f"An objective should return a scalar tensor. Found `{value!r}`.")
    derivatives: Sequence[Tensor | None] = [None] * len(inputs)
    if value.requires_grad:
        derivatives = torch.autograd.grad(value, inputs, allow_unused=True)
    return float(value.detach()), zeros_if_missing(derivatives, inputs)


def _check_norms(collector: Collector, norms: Tensor, gradients: Tensor) -> None:
    """Raise for the first gradient that is not finite, and name the parameters."""
    names, start = collector.problem.differentiated, collector.problem.start
    for index in (~torch.isfinite(norms)).nonzero().flatten().tolist():
        d = collector.share.sub_batches[index]
        parts = torch.split(gradients[index], [start[n].numel() for n in names])
        check_finite_parts(parts, names, f"The gradient of sub-batch {d}")
        check_norm(float(norms[index]), f"sub-batch {d}")
