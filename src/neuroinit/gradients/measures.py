"""Pure functions of the Gram matrix ``K[i, j] = <g_i, g_j>`` of the sub-batch gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """What an objective sees of the gradients ``g_1..g_D``.

    The norms and GradCosine are all that NIO needs, and they can be had without ever holding
    ``D`` gradients at once. ``gram`` is there for objectives that ask for it.

    Args:
        norms: ``||g_d||``, shape ``(D,)``.
        cosine: GradCosine over all pairs, ``|| mean_d g_d/||g_d|| ||^2`` (Alg. 1, line 6).
        gram: ``K``, shape ``(D, D)``, or ``None`` where it was not asked for.
    """

    norms: Tensor
    cosine: Tensor
    gram: Tensor | None = None

    @property
    def norm(self) -> Tensor:
        """Gradient norm GN: the mean of the norms (Alg. 1, line 4)."""
        return self.norms.mean()

    @property
    def distinct_cosine(self) -> Tensor:
        """GradCosine over the pairs ``i != j``, as in the authors' released code."""
        count = len(self.norms)
        if count == 1:
            return self.cosine * 0 + 1
        return (count * self.cosine - 1) / (count - 1)

    @property
    def variance(self) -> Tensor:
        """Gradient variance (Sec. 6.3); needs the Gram matrix."""
        if self.gram is None:
            raise ValueError("The gradient variance needs the Gram matrix: set `gram=True`.")
        return variance(self.gram)


def moments(gram: Tensor) -> Moments:
    """Norms and GradCosine of a Gram matrix, differentiable by it.

    Example:
        >>> float(moments(torch.tensor([[4.0, 0.0], [0.0, 9.0]])).cosine)
        0.5
    """
    return Moments(gram.diagonal().sqrt(), cosines(gram).mean(), gram)


def cosines(gram: Tensor) -> Tensor:
    """``K_ij / sqrt(K_ii K_jj)``, the cosine of every pair (Alg. 1, line 5).

    A gradient that is exactly zero has no direction; its cosines count as 0.
    """
    norms = gram.diagonal().sqrt()
    safe = torch.where(norms > 0, norms, torch.ones_like(norms))
    return gram / (safe[:, None] * safe[None, :])


def variance(gram: Tensor) -> Tensor:
    """``mean K_dd - mean K_ij``: the summed variance of the gradient's entries (Sec. 6.3)."""
    return gram.diagonal().mean() - gram.mean()


def theta(norms: Tensor, cosines: Tensor, smoothness: float = 1.0) -> Tensor:
    """``H g_max^2 / n * sum_ij (g_max/g_min - cos_ij)``, the bound of Eq. 5.

    Args:
        norms: ``||g_i||``, shape ``(n,)``.
        cosines: ``cos(g_i, g_j)``, shape ``(n, n)``.
        smoothness: ``H``, the bound on the second derivatives of the loss.
    """
    largest, smallest = norms.max(), norms.min()
    return smoothness * largest**2 / len(norms) * (largest / smallest - cosines).sum()
