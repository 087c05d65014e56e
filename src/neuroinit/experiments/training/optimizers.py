"""Optimizers of training runs, and one step of any optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypedDict

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from neuroinit.experiments.models.fixup import SCALAR_RATE, scalar_names
from neuroinit.experiments.training.config import Config


class Group(TypedDict):
    """A parameter group; ``rate_factor`` is its learning rate relative to that of the run."""

    params: list[nn.Parameter]
    weight_decay: float
    rate_factor: float


def make_optimizer(model: nn.Module, config: Config) -> Optimizer:
    """Make the optimizer of a configuration.

    AdamW does not decay tensors of fewer than two dimensions. In networks made for FixUp, biases
    and multipliers have a tenth of the learning rate, as in the authors' training script.
    """
    groups = [dict(group) for group in parameter_groups(model, config)]
    if config.optimizer == "sgd":
        return SGD(groups, config.lr, momentum=0.9, weight_decay=config.weight_decay)
    return AdamW(groups, config.lr, weight_decay=config.weight_decay)


def parameter_groups(model: nn.Module, config: Config) -> list[Group]:
    """Group parameters by weight decay and learning rate; groups without weight decay come last."""
    slow = scalar_names(model)
    groups: dict[tuple[bool, bool], Group] = {}
    for name, parameter in model.named_parameters():
        decayed = config.optimizer == "sgd" or parameter.dim() > 1
        group = groups.setdefault(
            (not decayed, name in slow),
            {
                "params": [],
                "weight_decay": config.weight_decay if decayed else 0.0,
                "rate_factor": SCALAR_RATE if name in slow else 1.0,
            },
        )
        group["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter group of :func:`make_optimizer`."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def take_step(
    optimizer: Optimizer, loss: Tensor, parameters: Iterable[Tensor] = (), clip: float = 0.0
) -> float:
    """Take one step of an optimizer, unless the loss is not finite.

    Args:
        optimizer: The optimizer.
        loss: A scalar with a graph.
        parameters: Parameters whose gradients are clipped.
        clip: Largest norm of their gradients; 0 for no clipping.

    Returns:
        The value of the loss.
    """
    value = loss.item()
    if math.isfinite(value):
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if clip:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
    return value
