"""Oracles of the measures: norms, cosines, agreement, GradSign."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.utils.oracles.gradients import sub_batch_gradients
from tests.utils.oracles.sub_batches import Slices


def norms(K: Tensor) -> Tensor:
    """The norm of each gradient."""
    return K.diagonal().sqrt()


def norm(K: Tensor) -> Tensor:
    """GN: Alg. 1 line 4."""
    return norms(K).mean()


def cosine(K: Tensor) -> Tensor:
    """GC: Alg. 1 line 6, over all pairs."""
    D = len(K)
    return sum(K[i, j] / (K[i, i] * K[j, j]).sqrt() for i in range(D) for j in range(D)) / D**2


def norm_ratio(K: Tensor) -> Tensor:
    """Largest by smallest norm."""
    return norms(K).max() / norms(K).min()


def variance(K: Tensor) -> Tensor:
    """Mean squared distance of the gradients from their mean."""
    return K.diagonal().mean() - K.mean()


def theta(K: Tensor, smoothness: float = 1.0) -> Tensor:
    """Eq. 4."""
    n, g_max = len(K), norms(K).max()
    cosines = K / torch.outer(norms(K), norms(K))
    total = sum(norm_ratio(K) - cosines[i, j] for i in range(n) for j in range(n))
    return smoothness * g_max**2 / n * total


def agreement(K: Tensor) -> Tensor:
    """The mean cosine of pairs i != j, from the Gram matrix of the gradients h_d."""
    D, pairs = len(K), []
    for i in range(D):
        for j in range(D):
            if i != j:
                known = K[i, i] > 0 and K[j, j] > 0
                pairs.append(K[i, j] / (K[i, i] * K[j, j]).sqrt() if known else 0 * K[i, j])
    return torch.stack(pairs).mean()


def with_permuted_targets(batch: Any, count: int = 4) -> list:
    """The batch with targets of other samples: moved by multiples of B / (count + 1)."""
    B = len(next(leaves(batch)))
    count = min(count, B - 1)
    orders = [[(i + k * B // (count + 1)) % B for i in range(B)] for k in range(1, count + 1)]
    if isinstance(batch, dict):
        return [{**batch, "labels": batch["labels"][order]} for order in orders]
    return [(batch[0], batch[1][order]) for order in orders]


def contrast_gram(
    model: nn.Module, batch: Any, slices: Slices, *args: Any, **options: Any
) -> Tensor:
    """The Gram matrix of h_d: the gradients minus the mean of those with permuted targets."""

    def flat(batch: Any) -> Tensor:
        found = sub_batch_gradients(model, batch, slices, *args, **options)
        return torch.stack([torch.cat([g.flatten() for g in grads.values()]) for grads in found])

    others = with_permuted_targets(batch)
    H = flat(batch) - sum(flat(other) for other in others) / len(others)
    return H @ H.T


def gradsign(model: nn.Module, batch: Any, *args: Any, **options: Any) -> float:
    """sum_k |sum_i sign(g_ik)| over sample-wise gradients."""
    B = len(next(leaves(batch)))
    samples = [slice(i, i + 1) for i in range(B)]
    gradients = sub_batch_gradients(model, batch, samples, *args, **options)
    signs = [torch.cat([g.flatten() for g in grads.values()]).sign() for grads in gradients]
    return torch.stack(signs).sum(0).abs().sum().item()


def leaves(batch: Any) -> Iterator[Tensor]:
    """The tensors of a nested batch."""
    if isinstance(batch, Tensor):
        yield batch
    else:
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from leaves(value)
