"""Pure functions of the Gram matrix ``K[i, j] = <g_i, g_j>`` of the sub-batch gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """The statistics of the gradients ``g_1..g_D`` that an objective is a function of.

    NIO needs the norms and GradCosine only; computing them does not require holding ``D`` gradients
    at once. ``gram`` is for objectives that read other entries of the Gram matrix.

    Args:
        norms: ``||g_d||``, shape ``(D,)``.
        cosine: GradCosine over all pairs, ``|| mean_d g_d/||g_d|| ||^2`` (Alg. 1, line 6).
        gram: ``K``, shape ``(D, D)``, or ``None`` if it was not requested.
        contrast: Computes the agreement when it is first read; ``None`` outside an engine.

    Example:
        >>> two = Moments(norms=torch.tensor([3.0, 5.0]), cosine=torch.tensor(0.75))
        >>> float(two.norm), float(two.distinct_cosine)
        (4.0, 0.5)
    """

    norms: Tensor
    cosine: Tensor
    gram: Tensor | None = None
    contrast: Callable[[], Tensor] | None = None

    @property
    def norm(self) -> Tensor:
        """The mean of the norms, GN (Alg. 1, line 4)."""
        return self.norms.mean()

    @property
    def distinct_cosine(self) -> Tensor:
        """GradCosine over the pairs ``i != j``, as in the authors' released code."""
        count, directed = len(self.norms), int((self.norms > 0).sum())
        if count == 1:
            return self.cosine * 0 + 1
        return (count * self.cosine - directed / count) / (count - 1)

    @property
    def agreement(self) -> Tensor:
        """The agreement, see ``gradients/agreement.py``.

        Computing it takes as long as computing the other moments together.
        """
        if self.contrast is None:
            raise ValueError("`moments.agreement` can be read inside the objective of NIO only.")
        return self.contrast()

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

    Args:
        gram: Of shape ``(..., D, D)``.
    """
    norms = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    safe = torch.where(norms > 0, norms, torch.ones_like(norms))
    return gram / (safe[..., :, None] * safe[..., None, :])


def distinct_mean(cosines: Tensor) -> Tensor:
    """The mean over the pairs ``i != j`` of a ``(D, D)`` matrix; nan for ``D = 1``."""
    count = len(cosines)
    pairs = cosines.new_tensor(count * (count - 1.0))
    return (cosines.sum() - cosines.diagonal().sum()) / pairs


def variance(gram: Tensor) -> Tensor:
    """``mean K_dd - mean K_ij``: the summed variance of the gradient's entries (Sec. 6.3)."""
    return gram.diagonal().mean() - gram.mean()


def theta(norms: Tensor, cosines: Tensor, smoothness: float = 1.0) -> Tensor:
    """``H g_max^2 / n * sum_ij (g_max/g_min - cos_ij)``, the bound of Eq. 4.

    Args:
        norms: ``||g_i||``, shape ``(n,)``.
        cosines: ``cos(g_i, g_j)``, shape ``(n, n)``.
        smoothness: ``H``, the bound on the second derivatives of the loss.
    """
    largest, smallest = norms.max(), norms.min()
    return smoothness * largest**2 / len(norms) * (largest / smallest - cosines).sum()
