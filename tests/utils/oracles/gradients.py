"""Oracles of losses and gradients by autograd, one sub-batch at a time."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.utils.oracles.sub_batches import Slices, cut


def training_copy(model: nn.Module, scales: dict[str, float] | None = None) -> nn.Module:
    """A float64 copy in train mode without dropout; parameters times their scales."""
    graphs = {  # tensors with a graph can't be copied (old weight_norm, cached outputs)
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and value.grad_fn is not None
    }
    model = copy.deepcopy(model, graphs).double().train()
    for module in model.modules():
        for name in ("p", "dropout", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    for name, parameter in model.named_parameters():
        parameter.data = (scales or {}).get(name, 1.0) * parameter.data
    return model


class Losses(nn.Module):
    """The mean losses of some sub-batches, from one forward of the batch they are slices of."""

    def __init__(
        self, model: nn.Module, loss_fn: Callable | None, compute_loss: Callable | None
    ) -> None:
        super().__init__()
        self.model, self.loss_fn, self.compute_loss = model, loss_fn, compute_loss

    def forward(self, batch: Any, slices: Slices) -> list[Tensor]:
        if self.compute_loss is None:
            inputs, targets = batch
            outputs = self.model(inputs)
            assert self.loss_fn is not None
            return [self.loss_fn(outputs[part], targets[part]).mean() for part in slices]
        losses = self.compute_loss(self.model, batch)
        if losses.ndim == 0:
            assert slices == [slice(None)], "a scalar loss can't be taken apart"
            return [losses]
        return [losses[part].mean() for part in slices]


def forward_plan(batch: Any, slices: Slices, batch_stats: str) -> list[tuple[Any, Slices]]:
    """What is given to the model at once: (samples, sub-batches as slices of these samples)."""
    if batch_stats == "batch":
        return [(cut(batch, slice(None)), slices)]
    return [(cut(batch, part), [slice(None)]) for part in slices]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter that requires a gradient, tied ones once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def sub_batch_gradients(
    model: nn.Module,
    batch: Any,
    slices: Slices,
    loss_fn: Callable | None = F.cross_entropy,
    compute_loss: Callable | None = None,
    batch_stats: str = "sub-batch",
) -> list[dict[str, Tensor]]:
    """The gradient of each sub-batch's mean loss by name; zero where a parameter is unused."""
    gradients = []
    for samples, parts in forward_plan(batch, slices, batch_stats):
        fresh = training_copy(model)
        parameters = trainable(fresh)
        with torch.compiler.set_stance("force_eager"):
            losses = Losses(fresh, loss_fn, compute_loss)(samples, parts)
        for loss in losses:
            grads = torch.autograd.grad(
                loss, list(parameters.values()), retain_graph=True, allow_unused=True
            )
            gradients.append({
                name: torch.zeros_like(p) if grad is None else grad.to_dense()
                for (name, p), grad in zip(parameters.items(), grads, strict=True)
            })  # fmt: skip
    return gradients


def gram(model: nn.Module, batch: Any, slices: Slices, *args: Any, **options: Any) -> Tensor:
    """K[i, j] = <g_i, g_j>; the arguments after `slices` are those of `sub_batch_gradients`."""
    gradients = sub_batch_gradients(model, batch, slices, *args, **options)
    G = torch.stack([torch.cat([g.flatten() for g in grads.values()]) for grads in gradients])
    return G @ G.T


def layer_grams(
    model: nn.Module, batch: Any, slices: Slices, *args: Any, **options: Any
) -> dict[str, Tensor]:
    """The same for each parameter by itself."""
    gradients = sub_batch_gradients(model, batch, slices, *args, **options)
    stacked = {name: torch.stack([g[name].flatten() for g in gradients]) for name in gradients[0]}
    return {name: G @ G.T for name, G in stacked.items()}
