"""Measures of gradient agreement, in plain torch.

Three losses whose sub-batch gradients are compared:

- ``plain``: the loss itself. Its GradCosine is near 1 for a network that ignores its input.
- ``profiled``: ``loss(f(x) + b)`` at the best constant answer ``b`` of the batch.
- ``contrast``: ``loss(f(x), y) - loss(f(x), y')`` with the targets ``y'`` permuted among the
  samples of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

Values = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of (N, C) or (N, T, C) class scores."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def shifted(target: Tensor, shift: int) -> Tensor:
    """The targets of other samples of the batch."""
    return target.roll(shift, 0)


def best_constant(output: Tensor, target: Tensor, newton: int = 12) -> Tensor:
    """``argmin_b`` of the mean cross-entropy of ``output + b``, by Newton steps.

    Half a count is given to every class, so that a class that is absent keeps a finite score.
    """
    z, y = output.detach().double().flatten(0, -2), target.flatten()
    count = z.shape[-1]
    frequency = (torch.bincount(y, minlength=count).double() + 0.5) / (len(y) + 0.5 * count)
    b = torch.zeros(count, dtype=torch.float64)
    for _ in range(newton):
        p = (z + b).softmax(-1)
        mean = p.mean(0)
        hessian = torch.diag(mean) - p.T @ p / len(p)
        step = torch.linalg.solve(
            hessian + 1e-6 * torch.eye(count, dtype=torch.float64), frequency - mean
        )
        b = b + step.clamp(-2, 2)
        b = b - b.mean()
    return b.to(output)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention that can be differentiated twice."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def parts(batch: Batch, count: int) -> list[Batch]:
    """The sub-batches."""
    return list(zip(batch[0].chunk(count), batch[1].chunk(count), strict=True))


Loss = Callable[[Tensor, tuple[Tensor, ...]], Tensor]


def losses_of(
    kind: str, model: nn.Module, values: Values, batch: Batch, count: int, shifts: int = 1
) -> list[Tensor]:
    """The loss of every sub-batch, as a function of the values."""
    x, y = batch
    constant: Tensor | None = None
    if kind == "profiled":
        with torch.no_grad():
            constant = best_constant(functional_call(model, values, (x,)), y)
    size = len(x)
    step = max(1, size // (shifts + 1))
    others = [shifted(y, step * (k + 1)).chunk(count) for k in range(shifts)]
    found = []
    for d, (xd, yd) in enumerate(parts(batch, count)):
        z = functional_call(model, values, (xd,))
        if constant is not None:
            z = z + constant
        loss = cross_entropy(z, yd)
        if kind == "contrast":
            loss = loss - sum(cross_entropy(z, o[d]) for o in others) / shifts
        found.append(loss)
    return found


def gradients(
    losses: list[Tensor], leaves: list[Tensor], create_graph: bool = False
) -> list[list[Tensor]]:
    """``g_d``, a list of tensors for every sub-batch."""
    rows = []
    for loss in losses:
        found = torch.autograd.grad(loss, leaves, create_graph=create_graph, allow_unused=True)
        rows.append(
            [torch.zeros_like(v) if g is None else g for g, v in zip(found, leaves, strict=True)]
        )
    return rows


def flat(row: list[Tensor]) -> Tensor:
    """One vector."""
    return torch.cat([g.flatten() for g in row])


def agreement(rows: list[Tensor]) -> Tensor:
    """``|| mean_d g_d / ||g_d|| ||^2``: GradCosine over all pairs, of flat gradients.

    A gradient of zero has no direction and adds nothing.
    """
    mean = sum(g / g.norm().clamp_min(1e-30) for g in rows) / len(rows)
    return mean @ mean


def entropy(target: Tensor) -> float:
    """The loss of the best constant answer: the entropy of the class frequencies."""
    p = torch.bincount(target.flatten()).double()
    p = p[p > 0] / p.sum()
    return float(-(p * p.log()).sum())
