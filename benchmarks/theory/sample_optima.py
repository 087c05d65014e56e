"""Optima of single samples, and what the paper's Theorem 2 says about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

DESCENTS, SOLVED = 600, 1e-4  # most steps to an optimum; loss that counts as zero
POWER_STEPS = 30


@dataclass(frozen=True)
class Samples:
    """A network's loss on single samples, as a function of one flat vector of parameters."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    inputs: Tensor
    targets: Tensor

    def start(self) -> Tensor:
        """The parameters of the model."""
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def of(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The loss at ``theta`` of inputs with a batch dimension."""
        values, begun = {}, 0
        for name, parameter in self.model.named_parameters():
            values[name] = theta[begun : begun + parameter.numel()].view_as(parameter)
            begun += parameter.numel()
        return self.loss(functional_call(self.model, values, (x,)), y)

    def one(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The loss of one sample."""
        return self.of(theta, x[None], y[None])

    def together(self, theta: Tensor) -> Tensor:
        """The mean loss of all samples."""
        return self.of(theta, self.inputs, self.targets)

    def gradients(self, theta: Tensor) -> Tensor:
        """Gradients of the samples at one point, ``(n, m)``."""
        return vmap(grad(self.one), (None, 0, 0))(theta, self.inputs, self.targets)

    def curvature(self, points: Tensor) -> Tensor:
        """The largest absolute eigenvalue of each sample's Hessian, each at a point of its own."""

        def product(theta: Tensor, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
            return jvp(lambda t: grad(self.one)(t, x, y), (theta,), (v,))[1]

        generator = torch.Generator().manual_seed(0)
        v = torch.randn(points.shape, generator=generator, dtype=points.dtype)
        for _ in range(POWER_STEPS):
            v = v / v.norm(dim=1, keepdim=True).clamp_min(1e-300)
            v = vmap(product)(points, self.inputs, self.targets, v)
        return v.norm(dim=1)


def descend(
    loss: Callable[[Tensor], tuple[Tensor, Tensor]], points: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient descent from every point, each with its own step: longer after it helped.

    Args:
        loss: Gradients and losses of points, ``(n, m)`` to ``(n, m)`` and ``(n,)``.
        points: Where to begin.

    Returns:
        Where it ends, and the losses there.
    """
    step = torch.full((len(points), 1), 0.1, dtype=points.dtype)
    gradients, losses = loss(points)
    for _ in range(DESCENTS):
        tried = points - step * gradients
        new_gradients, new_losses = loss(tried)
        better = (new_losses < losses)[:, None]
        points = torch.where(better, tried, points)
        gradients = torch.where(better, new_gradients, gradients)
        losses = torch.where(better[:, 0], new_losses, losses)
        step = torch.where(better, 1.2 * step, 0.5 * step)
        if losses.max() < SOLVED:
            break
    return points, losses


def theta_of(paths: Tensor) -> tuple[float, float]:
    """Theta of Eq. 2 for H = 1, and the mean cosine; Eq. 4 if the paths are gradients."""
    norms = paths.norm(dim=1)
    directions = paths / norms[:, None]
    ratio, n = norms.max() / norms.min(), len(paths)
    cosine = directions.mean(0).square().sum()
    return float(n * norms.max() ** 2 * (ratio - cosine)), float(cosine)


def hull_distance(point: Tensor, corners: Tensor) -> float:
    """Distance from the convex hull of the corners, by projected gradient on the weights."""
    gram, linear = corners @ corners.T, corners @ point
    step = 1.0 / float(torch.linalg.matrix_norm(gram, 2))
    weights = torch.full((len(corners),), 1 / len(corners), dtype=corners.dtype)
    for _ in range(3000):
        weights = on_simplex(weights - step * (gram @ weights - linear))
    return float((corners.T @ weights - point).norm())


def on_simplex(values: Tensor) -> Tensor:
    """The nearest weights that are not negative and sum to one."""
    ordered = values.sort(descending=True).values
    counts = torch.arange(1, len(values) + 1, dtype=values.dtype)
    excess = (ordered.cumsum(0) - 1) / counts
    return (values - excess[(ordered > excess).sum() - 1]).clamp_min(0)
