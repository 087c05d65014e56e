"""Helpers for modules with ``fully_shard``: reshard them, also after an exception."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import nn

from neuroinit.distributed.dtensor import is_sharded

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    """The modules to which ``fully_shard`` was applied."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    return [] if kind is None else [m for m in model.modules() if isinstance(m, kind)]


def reshard(model: nn.Module) -> None:
    """Free the tensors that FSDP has gathered, so that it gathers the current shards again."""
    for module in fsdp_modules(model):
        module.reshard()


def is_sharded_model(model: nn.Module) -> bool:
    """Whether a parameter is a DTensor, after FSDP has freed the tensors that it has gathered."""
    reshard(model)
    return any(is_sharded(parameter) for parameter in model.parameters())


def reset(model: nn.Module) -> None:
    """Reset the state of FSDP after an exception in a pass, so that a forward pass can begin.

    Otherwise FSDP assumes that its parameters are gathered, and the next pass mixes shards with
    whole tensors.
    """
    for module in fsdp_modules(model):
        state = module._get_fsdp_state()
        if state._is_root is not False and hasattr(module, "reset_iter_state"):  # torch 2.13
            module.reset_iter_state()
        _make_idle(state)
        module.reshard()


def _make_idle(state: Any) -> None:  # differs between versions of torch
    """Do the same as ``reset_iter_state``, for older versions of torch; also drop gradients."""
    idle = type(state._training_state)["IDLE"]
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    state._training_state = idle
    state._state_ctx.iter_forward_root = None
    state._state_ctx.post_backward_final_callback_queued = False
    state._comm_ctx.post_forward_order = []
    for group in groups:
        group._training_state = idle
        group._post_forward_indices.clear()
        if group._all_gather_result is not None:
            group.wait_for_unshard()
        for parameter in group.fsdp_params:
            if hasattr(parameter, "_unsharded_param"):
                parameter._unsharded_param.grad = None
                if "unsharded_accumulated_grad" in vars(parameter):  # until torch 2.14
                    parameter.unsharded_accumulated_grad = None


def check_not_fsdp1(model: nn.Module) -> None:
    """Raise for a model that is wrapped by ``FullyShardedDataParallel``."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    if kind is not None and any(isinstance(module, kind) for module in model.modules()):
        raise ValueError(
            "The model is wrapped by `FullyShardedDataParallel` (FSDP1), whose parameters are "
            "flattened and cannot be scaled one by one. Call this before the model is wrapped; or "
            "use `fully_shard` (FSDP2), see docs/guide/several-processes.md."
        )
