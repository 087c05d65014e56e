"""Slow, obvious oracles of the methods that NIO is compared with."""

import math
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from tests.kernels.passes.written_out import WrittenOut
from tests.utils.oracles import (
    Losses,
    ReferenceAdam,
    cut,
    leaves,
    sub_batch_slices_cover,
    trainable,
    training_copy,
    twice_differentiable,
)


class WrittenNorms(WrittenOut):
    """Normalization layers from means and roots, but for BatchNorm with running statistics."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is F.batch_norm and kwargs and not kwargs["training"]:
            return func(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)


class Scaled:
    """Autograd leaves w, one a tensor, and the loss and gradient at theta = {w_k W_k}."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Any,
        compute_loss: Any,
        scales: dict,
        running: bool = False,
    ) -> None:
        self.model, self.functions, self.running = model, (loss_fn, compute_loss), running
        original = trainable(training_copy(model))
        self.w = {
            name: torch.tensor(scales.get(name, 1.0), dtype=torch.float64, requires_grad=True)
            for name in original
        }
        self.theta = {name: self.w[name] * W.detach() for name, W in original.items()}

    def loss(self, batch: Any, theta: dict[str, Tensor]) -> Tensor:
        fresh = training_copy(self.model)
        for module in fresh.modules():  # sparse gradients have wrong third derivatives (2.13)
            if isinstance(module, nn.Embedding):
                module.sparse = False
            if self.running and isinstance(module, nn.modules.batchnorm._NormBase):
                module.eval()
        for name, p in trainable(fresh).items():  # a checkpoint recomputes from the copy
            p.data = theta[name].detach().clone()
        swapped = {f"model.{name}": value for name, value in theta.items()}
        losses = Losses(fresh, *self.functions)
        (loss,) = functional_call(losses, swapped, (cut(batch, slice(None)), [slice(None)]))
        return loss

    def gradient(self, batch: Any, names: list[str] | None = None) -> tuple[Tensor, list[Tensor]]:
        """The loss, and its gradient by some parameters; by all if there are no names."""
        loss = self.loss(batch, self.theta)
        by = [self.theta[name] for name in names or self.theta]
        found = torch.autograd.grad(loss, by, create_graph=True, materialize_grads=True)
        return loss, [g.to_dense() for g in found]

    def by_scales(self, value: Tensor) -> dict[str, float]:
        value.backward()
        return {n: 0.0 if w.grad is None else w.grad.item() for n, w in self.w.items()}


def gradinit_derivative(
    model: nn.Module,
    batch: Any,
    loss_fn: Callable | None,
    compute_loss: Callable | None = None,
    scales: dict[str, float] | None = None,
    *,
    gamma: float = 1.0,
    eta: float = 0.1,
    family: str = "sgd",
    normalize: bool = True,
    through_update: bool = False,
    names: list[str] | None = None,
) -> tuple[bool, float, dict[str, float]]:
    """Whether the bound is exceeded, what is descended, and its derivative by the scales.

    Only the parameters in ``names`` count in the norm and move; by default all.
    """
    first, second = sub_batch_slices_cover(len(next(leaves(batch))), 2, 0.5)
    with twice_differentiable():
        at = Scaled(model, loss_fn, compute_loss, scales or {})
        names = names or list(at.theta)
        _, g = at.gradient(cut(batch, first), names)
        flat = torch.cat([part.flatten() for part in g])
        norm = flat.abs().sum() if family == "adam" else flat.norm()
        if norm.item() > gamma:
            return True, norm.item(), at.by_scales(norm)
        if family == "adam":
            update = [part.sign() for part in g]
        else:
            update = [part / norm for part in g] if normalize else g
        if not through_update:
            update = [part.detach() for part in update]
        moved = dict(at.theta)
        for name, part in zip(names, update, strict=True):
            moved[name] = at.theta[name] - eta * part
        value = at.loss(cut(batch, second), moved) / eta
        return False, value.item(), at.by_scales(value)


def gradinit(
    model: nn.Module,
    batches: list,
    loss_fn: Any,
    *,
    steps: int,
    lr: float,
    bias_floor: float = 0.01,
    unscaled: tuple[str, ...] = (),
    **options: Any,
) -> tuple[dict[str, float], list[bool]]:
    """Some steps of GradInit with the Adam of the released code."""
    live = [name for name, p in trainable(model).items() if bool((p != 0).any())]
    scales = {name: 1.0 for name in live if name not in unscaled}
    adams = {name: ReferenceAdam(lr, 1.0) for name in scales}
    kinds = []
    for batch in islice(cycle(batches), steps):
        kind, _, found = gradinit_derivative(model, batch, loss_fn, None, scales, **options)
        kinds.append(kind)
        for name in scales:
            floor = bias_floor if "bias" in name else 0.01
            if scales[name] != 0:  # a tensor that has become zero stays zero
                scales[name] = max(scales[name] - adams[name].step(found[name], kind), floor)
    return scales, kinds


def quotient_derivative(
    model: nn.Module,
    batch: Any,
    loss_fn: Callable | None,
    compute_loss: Callable | None = None,
    scales: dict[str, float] | None = None,
    eps: float = 1e-5,
    running: bool = False,
) -> tuple[float, dict[str, float]]:
    """MetaInit's gradient quotient, and its derivative by the scales: third order."""
    with WrittenNorms(), twice_differentiable():
        at = Scaled(model, loss_fn, compute_loss, scales or {}, running)
        _, g = at.gradient(batch)
        half = sum(part.square().sum() for part in g) / 2
        h = torch.autograd.grad(
            half, list(at.theta.values()), create_graph=True, materialize_grads=True
        )
        flat, product = (torch.cat([part.to_dense().flatten() for part in x]) for x in (g, h))
        sign = torch.where(flat >= 0, 1.0, -1.0)
        quotient = ((flat - product) / (flat + eps * sign) - 1).abs().mean()
        return quotient.item(), at.by_scales(quotient)


def metainit(
    model: nn.Module, batches: list, loss_fn: Any, *, steps: int, lr: float, momentum: float
) -> dict[str, float]:
    """Some sign-momentum steps of the norms of the matrices, kept positive."""
    matrices = {n: p for n, p in trainable(model).items() if p.dim() >= 2 and bool((p != 0).any())}
    scales, velocity = dict.fromkeys(matrices, 1.0), dict.fromkeys(matrices, 0.0)
    for batch in islice(cycle(batches), steps):
        _, found = quotient_derivative(model, batch, loss_fn, scales=scales)
        for name, p in matrices.items():
            velocity[name] = momentum * velocity[name] - lr * float(
                torch.tensor(found[name]).sign()
            )
            scales[name] = max(scales[name] + velocity[name] / p.norm().item(), 0.01)
    return scales


def metainit_listing(
    model: nn.Module, batches: list, loss_fn: Any, *, steps: int, lr: float
) -> tuple[dict[str, float], int]:
    """The paper's listing: weights are multiplied by new norm over norm, which may be negative.

    Returns the scales, and how often a norm became negative.
    """
    matrices = {n: p.detach().double() for n, p in trainable(model).items() if p.dim() >= 2}
    scales, memory, flips = dict.fromkeys(matrices, 1.0), dict.fromkeys(matrices, 0.0), 0
    for batch in islice(cycle(batches), steps):
        _, found = quotient_derivative(model, batch, loss_fn, scales=scales, running=True)
        for name, W in matrices.items():
            norm = (scales[name] * W).norm().item()
            by_norm = scales[name] * found[name] / norm  # <theta, dQ/dtheta> / ||theta||
            memory[name] = 0.9 * memory[name] - lr * math.copysign(1.0, by_norm)
            flips += norm + memory[name] < 0
            scales[name] *= (norm + memory[name]) / norm
    return scales, flips
