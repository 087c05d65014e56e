"""From the objective back to the gradients: the direction ``v_d = dPhi/dg_d`` of a sub-batch."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.gradients.measures import Moments
from neuroinit.gradients.plan import RankShare

PART = 2**14  # on a CPU, directions are computed for this many entries at a time, to stay in cache


@dataclass(frozen=True, eq=False)
class Directions(abc.ABC):
    """The objective of all sub-batches, and the directions of this rank's.

    Args:
        value: The objective ``Phi``.
        moments: What it is a function of.
        losses: The losses of this rank's pieces, float64 on the CPU.
        share: This rank's part of the plan.
    """

    value: float
    moments: Moments
    losses: Tensor
    share: RankShare

    @abc.abstractmethod
    def of(self, first: int, gradients: Tensor) -> Tensor:
        """The directions ``v_d = dPhi/dg_d`` of consecutive sub-batches, one row each.

        Args:
            first: The index of the first one among this rank's sub-batches.
            gradients: Their gradients ``g_d``. They may be overwritten.
        """


@dataclass(frozen=True, eq=False)
class MeanDirections(Directions):
    """The directions from the mean unit gradient.

    Args:
        mean: The mean of the unit gradients ``u_d = g_d / ||g_d||`` of all sub-batches.
        by_norms: ``Phi_{n_d}``, the derivatives of the objective by the norms of the gradients.
        by_cosine: ``Phi_c``, its derivative by GradCosine.
        summed: The gradients of this rank's sub-batches, if several ranks compute parts of each.
    """

    mean: Tensor
    by_norms: Tensor
    by_cosine: float
    summed: Tensor | None

    def of(self, first: int, gradients: Tensor) -> Tensor:
        """``v_d = Phi_c (2/D) (u - u_d <u_d, u>) / ||g_d|| + Phi_{n_d} u_d``, one row each.

        ``u`` is ``mean``. The gradients are overwritten.
        """
        if self.summed is not None:
            gradients = self.summed[first : first + len(gradients)].clone()
        return self.of_blocks(first, [gradients])[0]

    def of_blocks(self, first: int, blocks: Sequence[Tensor]) -> Sequence[Tensor]:
        """As :meth:`of`, for gradients that :meth:`MeanDirection.add_blocks` received."""
        own, sizes = range(first, first + len(blocks[0])), [block.shape[1] for block in blocks]
        d = [self.share.sub_batches[i] for i in own]
        norms, count = self.moments.norms[d], len(self.moments.norms)
        known = norms > 0
        safe = torch.where(known, norms, 1.0)
        weights = torch.where(known, 2 * self.by_cosine / (count * safe), 0.0)
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


@dataclass(frozen=True, eq=False)
class AllDirections(Directions):
    """The directions from the gradients of all sub-batches.

    Args:
        gradients: Shape ``(D, parameters)``.
        weights: ``A + A^T`` with ``A = dPhi/dK``, shape ``(D, D)``.
    """

    gradients: Tensor
    weights: Tensor

    def of(self, first: int, gradients: Tensor) -> Tensor:
        """``v_d = sum_j (A + A^T)_dj g_j``.

        ``gradients`` only says how many sub-batches are meant: all gradients are held here.
        """
        d = list(self.share.sub_batches[first : first + len(gradients)])
        return self.weights[d].to(self.gradients) @ self.gradients
