"""Losses that take a gradient themselves, with models and data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

Loss = Callable[[nn.Module, Any], Tensor]


def _perceptron(inputs: int = 3, outputs: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, outputs)
    )


def _normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))


def _critic() -> nn.Module:
    body = [nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Softplus(), nn.Conv2d(4, 4, 2, stride=2)]
    return nn.Sequential(*body, nn.LayerNorm([4, 1, 1]), nn.Tanh(), nn.Flatten(), nn.Linear(4, 1))


class _Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.TransformerEncoderLayer(4, 2, 8, 0.1, batch_first=True, bias=False)
        self.out = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mix(x).mean(1))


def _points(n: int = 12) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {
        "x": torch.randn(n, 3, generator=generator, dtype=torch.float64),
        "y": torch.randn(n, 1, generator=generator, dtype=torch.float64),
    }


def _shaped(*shape: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(12, *shape, generator=generator, dtype=torch.float64)
    return {"x": x, "y": torch.randn(12, 1, generator=generator, dtype=torch.float64)}


def gradient_penalty(model: nn.Module, batch: Any) -> Tensor:
    """WGAN-GP: the norm of the gradient by the input should be 1."""
    x = batch["x"].clone().requires_grad_()
    y = model(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return (y * batch["y"]).mean() + 10 * (g.flatten(1).norm(dim=1) - 1).square().mean()


def attention_penalty(model: nn.Module, batch: Any) -> Tensor:
    """R1 with attention that can be differentiated twice, as training needs."""
    with sdpa_kernel(SDPBackend.MATH):
        return zero_centered_penalty(model, batch)


def zero_centered_penalty(model: nn.Module, batch: Any) -> Tensor:
    """R1, one loss a sample."""
    x = batch["x"].clone().requires_grad_()
    y = model(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return F.softplus(-y).flatten() + 5 * g.square().flatten(1).sum(1)


def physics(model: nn.Module, batch: Any) -> Tensor:
    """A physics-informed network: the residual of Poisson's equation, and boundary values."""
    x = batch["x"].clone().requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    laplacian = sum(
        torch.autograd.grad(du[:, k].sum(), x, create_graph=True)[0][:, k] for k in range(3)
    )
    return (laplacian - batch["y"][:, 0]).square().mean() + model(0 * x).square().mean()


def forces(model: nn.Module, batch: Any) -> Tensor:
    """A force field: energies and minus their gradient by the positions."""
    positions = batch["x"].clone().requires_grad_()
    energy = model(positions)
    (g,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
    return F.mse_loss(energy, batch["y"]) + (-g - torch.cos(batch["x"])).square().mean()


def divergence(model: nn.Module, batch: Any) -> Tensor:
    """A continuous normalizing flow: two Euler steps with the exact divergence."""
    x = batch["x"].clone().requires_grad_()
    total: Tensor | float = 0.0
    for _ in range(2):
        v = model(x)
        total = total + sum(
            torch.autograd.grad(v[:, k].sum(), x, create_graph=True)[0][:, k] for k in range(3)
        )
        x = x + 0.5 * v
    return (x.square().sum(1) / 2 - 0.5 * total).mean()


def maml(model: nn.Module, batch: Any) -> Tensor:
    """The loss on half of the samples after a step on the other half."""
    x, y = batch["x"], batch["y"]
    parameters = dict(model.named_parameters())
    inner = F.mse_loss(model(x[::2]), y[::2])
    found = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
    moved = {n: p - 0.3 * g for (n, p), g in zip(parameters.items(), found, strict=True)}
    return F.mse_loss(functional_call(model, moved, (x[1::2],)), y[1::2])


def maml_functional(model: nn.Module, batch: Any) -> Tensor:
    """The same by torch.func, two steps."""
    x, y = batch["x"], batch["y"]
    moved = dict(model.named_parameters())
    for _ in range(2):
        found = grad(lambda p: F.mse_loss(functional_call(model, p, (x[::2],)), y[::2]))(moved)
        moved = {n: p - 0.3 * found[n] for n, p in moved.items()}
    return F.mse_loss(functional_call(model, moved, (x[1::2],)), y[1::2])


def tangent(model: nn.Module, batch: Any) -> Tensor:
    """torch.func.jvp."""
    y, dy = jvp(model, (batch["x"],), (torch.cos(batch["x"]),))
    return F.mse_loss(y, batch["y"]) + dy.square().mean()


def cotangent(model: nn.Module, batch: Any) -> Tensor:
    """torch.func.vjp."""
    y, pull = vjp(model, batch["x"])
    return F.mse_loss(y, batch["y"]) + pull(torch.ones_like(y))[0].square().mean()


def curvature(model: nn.Module, batch: Any) -> Tensor:
    """torch.func.hessian of every sample."""
    found = vmap(hessian(lambda s: model(s[None]).sum()))(batch["x"])
    return F.mse_loss(model(batch["x"]), batch["y"]) + found.square().mean()


def contraction(model: nn.Module, batch: Any) -> Tensor:
    """A contractive loss: torch.func.jacfwd of every sample."""
    found = vmap(jacfwd(lambda s: model(s[None])[0]))(batch["x"])
    return F.mse_loss(model(batch["x"]), batch["y"]) + found.square().mean()


def adversarial(model: nn.Module, batch: Any) -> Tensor:
    """A gradient that is only used as a number."""
    x = batch["x"].clone().requires_grad_()
    (g,) = torch.autograd.grad(F.mse_loss(model(x), batch["y"]), x)
    return F.mse_loss(model(batch["x"] + 0.1 * g.sign()), batch["y"])


def backward_inside(model: nn.Module, batch: Any) -> Tensor:
    """``.backward`` into the input's ``.grad``."""
    x = batch["x"].clone().requires_grad_()
    model(x).sum().backward(create_graph=True, inputs=[x])
    assert x.grad is not None
    return F.mse_loss(model(x), batch["y"]) + x.grad.square().mean()


KINDS: dict[str, tuple[Loss, Callable[[], nn.Module], Callable[[], Any]]] = {
    "gradient penalty, convolutions": (gradient_penalty, _critic, lambda: _shaped(1, 4, 4)),
    "gradient penalty, LayerNorm": (gradient_penalty, _normed, _points),
    "R1 penalty, a loss per sample": (zero_centered_penalty, _perceptron, _points),
    "R1 penalty, transformer": (attention_penalty, _Attending, lambda: _shaped(5, 4)),
    "physics-informed": (physics, _perceptron, _points),
    "force field": (forces, _perceptron, _points),
    "neural ODE divergence": (divergence, partial(_perceptron, 3, 3), _points),
    "MAML": (maml, _normed, _points),
    "MAML by torch.func, two steps": (maml_functional, _perceptron, _points),
    "torch.func.jvp": (tangent, _normed, _points),
    "torch.func.vjp": (cotangent, _perceptron, _points),
    "torch.func.hessian": (curvature, _perceptron, _points),
    "torch.func.jacfwd": (contraction, _perceptron, _points),
    "adversarial inputs": (adversarial, _perceptron, _points),
    "backward inside": (backward_inside, _normed, _points),
}
