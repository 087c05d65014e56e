"""From sub-batch gradients to the objective, and back to the direction ``v_d = dPhi/dg_d``.

A collector receives the gradients ``g_1..g_D``, computes the objective ``Phi`` and its derivative,
and then returns the direction of every sub-batch. With several ranks, each rank adds the gradients
of its share of the sub-batches; the objective is that of all sub-batches on every rank.
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
from neuroinit.gradients.measures import Moments, moments
from neuroinit.gradients.over_ranks import on_every_rank, zero_gradient
from neuroinit.gradients.plan import RankShare
from neuroinit.model.finite import check_finite_parts, check_losses, check_norm, check_zero_norms
from neuroinit.model.problem import Problem

Objective = Callable[[Moments], Tensor]

PART = 2**14  # on a CPU, directions are computed for this many entries at a time, to stay in cache


class MeanDirection:
    """For objectives of the norms and GradCosine: holds one vector, the mean unit gradient.

    Args:
        problem: The model and its loss.
        count: Number of sub-batches ``D`` over all ranks.
        share: This rank's part of the plan.

    Attributes:
        losses: After :meth:`evaluate`, the losses of the pieces, float64 on the CPU.
    """

    def __init__(self, problem: Problem, count: int, share: RankShare) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.norms: list[Tensor] = []
        self.mean: Tensor | None = None
        self.summed: list[Tensor] = []  # gradients summed over the ranks of a block
        self.losses = _NOTHING

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

    def evaluate(self, objective: Objective, losses: Sequence[Tensor] = ()) -> Tensor:
        """Compute the objective; store its derivatives by the norms and the cosine.

        Args:
            objective: Function of :class:`Moments`.
            losses: The losses of the pieces. They are checked first.

        Raises:
            NonFiniteError: If a loss or a gradient is not finite.
            ZeroGradientError: If all gradients are zero.
        """
        norms, cosine = self._norms_and_cosine(losses)
        check_zero_norms(norms)
        self.moments = Moments(norms, cosine)
        inputs = [norms.clone().requires_grad_(), cosine.clone().requires_grad_()]
        value, (self.by_norms, by_cosine) = _differentiate(
            objective(Moments(inputs[0], inputs[1])), inputs
        )
        self.by_cosine = float(by_cosine)
        return value

    def _norms_and_cosine(self, losses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Norms and GradCosine of all ranks' sub-batches, on the CPU; sums the mean over ranks."""
        ranks, mean = self.problem.ranks, self.mean
        if mean is None:
            mean = zero_gradient(self.problem, self.problem.differentiated)
        found = to_host(dot(mean, mean), *losses, *self.norms)
        cosine, self.losses = found[0], _joined(found[1 : 1 + len(losses)])
        norms = _joined(found[1 + len(losses) :])
        check_losses(self.losses)
        self._check_norms(norms, mean)
        self.mean = mean
        if ranks.alone:
            return norms, cosine
        self.mean = ranks.sum(mean)
        every = torch.zeros(self.count, dtype=torch.float64, device="cpu")
        if self.share.leader:
            every[list(self.share.sub_batches)] = norms
        return ranks.sum(every), to_cpu_double(dot(self.mean, self.mean))

    def _check_norms(self, norms: Tensor, mean: Tensor) -> None:
        bad = (~torch.isfinite(norms)).nonzero().flatten().tolist()
        if bad:
            d = self.share.sub_batches[bad[0]]
            _check_finite(self.problem, mean, d)
            check_norm(float(norms[bad[0]]), f"sub-batch {d}")

    def directions(self, first: int, gradients: Tensor) -> Tensor:
        """``v_d = Phi_c (2/D) (u - u_d <u_d, u>) / ||g_d|| + Phi_{n_d} u_d``, one row each.

        ``u_d = g_d / ||g_d||``, ``u`` is the mean of all ``u_d``, and ``Phi_c`` and ``Phi_{n_d}``
        are the derivatives of the objective by the cosine and by the norm of ``g_d``.

        Args:
            first: The index of the first row among this rank's sub-batches.
            gradients: The gradients ``g_d`` of consecutive sub-batches. They are overwritten.
        """
        if self.share.blocks:
            gradients = torch.cat(self.summed)[first : first + len(gradients)]
        return self.directions_of_blocks(first, [gradients])[0]

    def directions_of_blocks(self, first: int, blocks: Sequence[Tensor]) -> Sequence[Tensor]:
        """As :meth:`directions`, for gradients that :meth:`add_blocks` received."""
        assert self.mean is not None  # set by `evaluate`
        own, sizes = range(first, first + len(blocks[0])), [block.shape[1] for block in blocks]
        d = [self.share.sub_batches[i] for i in own]
        norms = self.moments.norms[d]
        known = norms > 0
        safe = torch.where(known, norms, 1.0)
        weights = torch.where(known, 2 * self.by_cosine / (self.count * safe), 0.0)
        table = torch.stack([safe, weights, self.by_norms[d]])
        safe, weights, by_norms = table.to(blocks[0])[:, :, None]
        pairs = list(zip(blocks, torch.split(self.mean, sizes), strict=True))
        products = pairs[0][0] @ pairs[0][1]
        for block, mean in pairs[1:]:
            products += block @ mean
        factors = by_norms - weights * products[:, None] / safe
        for block, mean in pairs:
            width = PART if block.device.type == "cpu" else max(1, block.shape[1])
            parts = torch.split(block, width, 1), torch.split(mean, width)
            for part, own_mean in zip(*parts, strict=True):  # in place: no new memory
                part.div_(safe).mul_(factors).addcmul_(weights, own_mean)
        return blocks


class AllGradients:
    """For objectives of any entry of the Gram matrix: holds all ``D`` gradients.

    Args:
        problem: The model and its loss.
        count: Number of sub-batches ``D`` over all ranks.
        share: This rank's part of the plan.

    Attributes:
        losses: After :meth:`evaluate`, the losses of the pieces, float64 on the CPU.
    """

    def __init__(self, problem: Problem, count: int, share: RankShare) -> None:
        self.problem, self.count, self.share = problem, count, share
        self.added: list[Tensor] = []
        self.losses = _NOTHING

    def add(self, gradients: Tensor) -> None:
        """Add gradients of this rank's sub-batches, shape ``(rows, parameters)``."""
        self.added.append(gradients)

    def evaluate(self, objective: Objective, losses: Sequence[Tensor] = ()) -> Tensor:
        """As in ``MeanDirection``; stores the derivative of the objective by the Gram matrix."""
        gram = self._gram(losses).requires_grad_()
        check_zero_norms(gram.diagonal(), tolerated=0)
        self.moments = moments(gram.detach())
        value, (by_gram,) = _differentiate(objective(moments(gram)), [gram])
        self.weights = by_gram + by_gram.T
        return value

    def _gram(self, losses: Sequence[Tensor]) -> Tensor:
        """The Gram matrix of all sub-batches, on the CPU; losses and gradients are checked."""
        problem, added = self.problem, self.added
        self.added = []
        gradients = added[0] if len(added) == 1 else torch.cat(added) if added else None
        if gradients is not None and problem.ranks.alone and not problem.sharded:
            self.gradients = gradients
            gram, *on_host = to_host(gram_matrix(gradients), *losses)
            self._check(gram.diagonal().sqrt(), on_host, gradients)
            return gram
        if gradients is not None:
            norms, *on_host = to_host(problem.norms(gradients), *losses)
            self._check(norms, on_host, gradients)
        rows = [] if gradients is None else list(gradients)
        names = problem.differentiated
        every = on_every_rank(problem, self.count, self.share, rows, names)
        self.gradients = torch.stack(list(every))
        return problem.gram(self.gradients)

    def _check(self, norms: Tensor, losses: Sequence[Tensor], gradients: Tensor) -> None:
        self.losses = _joined(losses)
        check_losses(self.losses)
        for index in (~torch.isfinite(norms)).nonzero().flatten().tolist():
            d = self.share.sub_batches[index]
            _check_finite(self.problem, gradients[index], d)
            check_norm(float(norms[index]), f"sub-batch {d}")

    def directions(self, first: int, gradients: Tensor) -> Tensor:
        """``v_d = sum_j (A + A^T)_dj g_j`` with ``A = dPhi/dK``, one row each."""
        d = list(self.share.sub_batches[first : first + len(gradients)])
        return self.weights[d].to(self.gradients) @ self.gradients


Collector = MeanDirection | AllGradients
_NOTHING = torch.zeros(0, dtype=torch.float64, device="cpu")


def _joined(values: Sequence[Tensor]) -> Tensor:
    """Concatenate scalars and vectors to one vector."""
    return torch.cat([v.reshape(-1) for v in values]) if values else _NOTHING


def _differentiate(value: Tensor, inputs: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    if not isinstance(value, Tensor) or value.dim() != 0:
        raise ValueError(f"An objective should return a scalar tensor. Found `{value!r}`.")
    derivatives: Sequence[Tensor | None] = [None] * len(inputs)
    if value.requires_grad:
        derivatives = torch.autograd.grad(value, inputs, allow_unused=True)
    return value.detach(), zeros_if_missing(derivatives, inputs)


def _check_finite(problem: Problem, gradient: Tensor, d: int) -> None:
    """Raise for a gradient that is not finite, and name the parameters."""
    names = problem.differentiated
    parts = torch.split(gradient, [problem.start[n].numel() for n in names])
    check_finite_parts(parts, names, f"The gradient of sub-batch {d}")
