"""Everything about a model and the random state that must come back as it was."""

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Bits of all tensors, identities, gradients, modes, plain attributes and random states."""
    modules = dict(model.named_modules())
    return {
        "parameters": {n: bits(p) for n, p in model.named_parameters(remove_duplicate=False)},
        "identities": {n: id(p) for n, p in model.named_parameters(remove_duplicate=False)},
        "pointers": {n: p.data_ptr() for n, p in model.named_parameters()},
        "types": {n: type(p) for n, p in model.named_parameters()},
        "requires_grad": {n: p.requires_grad for n, p in model.named_parameters()},
        "grads": {n: None if p.grad is None else bits(p.grad) for n, p in model.named_parameters()},
        "buffers": {n: bits(b) for n, b in model.named_buffers(remove_duplicate=False)},
        "buffer identities": {n: id(b) for n, b in model.named_buffers()},
        "training": {n: m.training for n, m in modules.items()},
        "attributes": {n: plain(m) for n, m in modules.items()},
        "keys": {n: sorted(vars(m)) for n, m in modules.items()},
        "torch random": torch.get_rng_state().tolist(),
        "python random": random.getstate(),
        "numpy random": str(np.random.get_state()),
    }


def bits(tensor: Tensor) -> tuple:
    """A tensor's dtype, shape and exact bytes."""
    dense = tensor.detach().contiguous().cpu().reshape(-1)
    return tensor.dtype, tensor.shape, tuple(dense.view(torch.uint8).tolist())


def plain(module: nn.Module) -> dict[str, Any]:
    """Attributes that are numbers, strings or flags; identities of tensors."""
    kept = {}
    for key, value in vars(module).items():
        if isinstance(value, (bool, int, float, str)):
            kept[key] = copy.copy(value)
        elif isinstance(value, Tensor):
            kept[key] = id(value)
    return kept


def assert_unchanged(before: dict[str, Any], model: nn.Module, *, except_for: tuple = ()) -> None:
    """Compare with a snapshot, part by part, for a readable failure."""
    after = snapshot(model)
    for part, value in before.items():
        if part not in except_for:
            assert after[part] == value, f"{part} changed"
