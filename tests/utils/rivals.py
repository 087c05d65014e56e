"""Slow, obvious oracles of the methods that NIO is compared with."""

import copy
import math
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

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
from tests.utils.written_out import WrittenOut


class Scaled:
    """Autograd leaves w, one a tensor, and the loss and gradient at theta = {w_k W_k}."""

    def __init__(self, model: nn.Module, loss_fn: Any, compute_loss: Any, scales: dict) -> None:
        self.model, self.functions = model, (loss_fn, compute_loss)
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
        for name, p in trainable(fresh).items():  # a checkpoint recomputes from the copy
            p.data = theta[name].detach().clone()
        swapped = {f"model.{name}": value for name, value in theta.items()}
        losses = Losses(fresh, *self.functions)
        (loss,) = functional_call(losses, swapped, (cut(batch, slice(None)), [slice(None)]))
        return loss

    def gradient(self, batch: Any) -> tuple[Tensor, list[Tensor]]:
        loss = self.loss(batch, self.theta)
        found = torch.autograd.grad(
            loss, list(self.theta.values()), create_graph=True, materialize_grads=True
        )
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
    optimizer: str = "sgd",
    normalize: bool = True,
    through_update: bool = False,
) -> tuple[bool, float, dict[str, float]]:
    """Whether the bound is exceeded, what is descended, and its derivative by the scales."""
    first, second = sub_batch_slices_cover(len(next(leaves(batch))), 2, 0.5)
    with twice_differentiable():
        at = Scaled(model, loss_fn, compute_loss, scales or {})
        _, g = at.gradient(cut(batch, first))
        flat = torch.cat([part.flatten() for part in g])
        norm = flat.abs().sum() if optimizer == "adam" else flat.norm()
        if norm.item() > gamma:
            return True, norm.item(), at.by_scales(norm)
        if optimizer == "adam":
            update = [part.sign() for part in g]
        else:
            update = [part / norm for part in g] if normalize else g
        if not through_update:
            update = [part.detach() for part in update]
        moved = {
            name: value - eta * part
            for (name, value), part in zip(at.theta.items(), update, strict=True)
        }
        value = at.loss(cut(batch, second), moved) / eta
        return False, value.item(), at.by_scales(value)


def gradinit(
    model: nn.Module, batches: list, loss_fn: Any, *, steps: int, lr: float, **options: Any
) -> tuple[dict[str, float], list[bool]]:
    """Some steps of GradInit with the Adam of the released code."""
    scales = {name: 1.0 for name, p in trainable(model).items() if bool((p != 0).any())}
    adams = {name: ReferenceAdam(lr, 1.0) for name in scales}
    kinds = []
    for batch in islice(cycle(batches), steps):
        kind, _, found = gradinit_derivative(model, batch, loss_fn, None, scales, **options)
        kinds.append(kind)
        for name in scales:
            scales[name] = max(scales[name] - adams[name].step(found[name], kind), 0.01)
    return scales, kinds


def quotient_derivative(
    model: nn.Module,
    batch: Any,
    loss_fn: Callable | None,
    compute_loss: Callable | None = None,
    scales: dict[str, float] | None = None,
    eps: float = 1e-5,
) -> tuple[float, dict[str, float]]:
    """MetaInit's gradient quotient, and its derivative by the scales: third order."""
    with twice_differentiable(), WrittenOut():
        at = Scaled(model, loss_fn, compute_loss, scales or {})
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
    """Some sign-momentum steps of the norms of the matrices, as in MetaInit's paper."""
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


def lsuv(
    model: nn.Module, forward: Callable[[nn.Module], Any], tolerance: float = 0.1, tries: int = 10
) -> nn.Module:
    """Linear and convolutional layers in the order in which they first run, by whole passes."""
    model = training_copy(model)
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))]
    order: list[nn.Module] = []
    variances: dict[nn.Module, float] = {}

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if module not in variances:
            order.append(module)
            variances[module] = output.var(correction=0).item()

    hooks = [layer.register_forward_hook(note) for layer in layers]

    def run() -> None:
        order.clear()
        variances.clear()
        with torch.no_grad(), twice_differentiable():
            forward(copy_of_buffers(model))

    run()
    weights = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for layer in list(order):
        parameter = layer._parameters.get("weight")
        if parameter is None or id(parameter) in weights or not parameter.requires_grad:
            continue
        weights.add(id(parameter))
        for _ in range(tries):
            run()
            variance = variances[layer]
            if variance == 0 or abs(variance - 1) < tolerance:
                break
            parameter.data /= math.sqrt(variance)
    for hook in hooks:
        hook.remove()
    return model


def copy_of_buffers(model: nn.Module) -> nn.Module:
    """The model itself, its buffers replaced by copies of what they were at first."""
    for module in model.modules():
        saved = module.__dict__.setdefault("_saved_buffers", copy.deepcopy(module._buffers))
        module._buffers = copy.deepcopy(saved)
    return model
