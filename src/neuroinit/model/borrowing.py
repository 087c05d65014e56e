"""Use the user's model for a while: training mode without dropout; restored afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuroinit.common.random_state import isolated


@contextmanager
def borrowed(model: nn.Module, second_order: bool = False) -> Iterator[None]:
    """Training mode, dropout off; on leaving, every attribute of every module is restored.

    Parameters and buffers may be replaced inside. Backward passes have to run inside as well:
    checkpointed modules run their forward pass again there. Interrupts wait, see
    :mod:`neuroinit.common.signals`. Can be nested.

    Args:
        model: The user's module.
        second_order: Use operators that can be differentiated twice.
    """
    modules = list(model.modules())
    with isolated(), ExitStack() as stack:
        stack.callback(_restore, [_Saved(module) for module in modules])
        for module in modules:
            _disable_dropout(module)
        for context in _contexts(modules, second_order):
            stack.enter_context(context)
        yield


def _contexts(modules: list[nn.Module], second_order: bool) -> Iterator[Any]:
    devices = {p.device.type for m in modules for p in m._parameters.values() if p is not None}
    for device in devices:  # a caller's autocast would make the engines differ
        yield torch.autocast(device, enabled=False)
    if "torch._dynamo" in sys.modules:  # compiled code has no double backward
        yield torch.compiler.set_stance("force_eager")
    if second_order:  # nor have fused attention and cuDNN's recurrent layers
        yield sdpa_kernel(SDPBackend.MATH)
        if any(isinstance(m, nn.RNNBase) for m in modules):
            yield torch.backends.cudnn.flags(enabled=False)


def _disable_dropout(module: nn.Module) -> None:
    """Training mode without dropout.

    A module without parameters, buffers and children is put in eval mode, which disables dropout,
    stochastic depth and similar modules of any type. Recurrent layers have dropout as a number.
    """
    module.training = bool(module._parameters or module._buffers or module._modules)
    if isinstance(module, nn.RNNBase):
        module.dropout = 0.0


class _Saved:
    """A module's attributes, and copies of the containers and tensors among them."""

    def __init__(self, module: nn.Module) -> None:
        self.attributes = vars(module)
        self.tables = [
            (table, dict(table))
            for table in (
                self.attributes,
                module._parameters,
                module._buffers,
                module._modules,
                *(value for value in self.attributes.values() if type(value) is dict),
            )
        ]
        self.sequences = [(v, list(v)) for v in self.attributes.values() if type(v) is list]
        self.sets = [(v, set(v)) for v in self.attributes.values() if type(v) is set]
        self.tensors = [
            (value, value.clone())
            for value in self.attributes.values()
            if isinstance(value, Tensor) and not value.requires_grad
        ]

    def restore(self) -> None:
        """Restore everything."""
        for table, entries in self.tables:
            table.update(entries)
            for key in table.keys() - entries.keys():
                del table[key]
        for sequence, items in self.sequences:
            sequence[:] = items
        for members, kept in self.sets:
            members.clear()
            members.update(kept)
        for tensor, values in self.tensors:
            tensor.copy_(values)


@torch.no_grad()
def _restore(saved: list[_Saved]) -> None:
    for module in saved:
        module.restore()
