"""Put the user's model in training mode without dropout, and restore it afterwards."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _NormBase

from neuroinit.common.process.random_state import isolated
from neuroinit.common.process.switches import ProcessSwitch

NORM_STATISTICS = ("batch", "running")

EAGER = ProcessSwitch(lambda: torch.compiler.set_stance("force_eager"))
MATH_ATTENTION = ProcessSwitch(lambda: sdpa_kernel(SDPBackend.MATH))
WITHOUT_CUDNN = ProcessSwitch(lambda: torch.backends.cudnn.flags(enabled=False))


@contextmanager
def borrowed(model: nn.Module, second_order: bool, norm_statistics: str) -> Iterator[None]:
    """A context with training mode and dropout off; its exit restores all attributes of modules.

    Parameters and buffers may be replaced inside. Backward passes have to run inside, because
    checkpointed modules repeat their forward pass in them. Ctrl-C is delayed, see
    :mod:`neuroinit.common.process.signals`. Can be nested.

    Args:
        model: The user's module.
        second_order: Use operators that can be differentiated twice.
        norm_statistics: ``"running"`` puts BatchNorm and InstanceNorm in eval mode.
    """
    modules = list(model.modules())
    with isolated(), ExitStack() as stack:
        stack.callback(_Saved(modules).restore)
        for module in modules:
            _disable_dropout(module)
            if norm_statistics == "running" and isinstance(module, _NormBase):
                module.training = False
        for context in _contexts(modules, second_order):
            stack.enter_context(context)
        yield


def _contexts(
    modules: list[nn.Module], second_order: bool
) -> Iterator[AbstractContextManager[object]]:
    devices = {p.device.type for m in modules for p in m._parameters.values() if p is not None}
    for device in devices:  # under the caller's autocast, engines would give different results
        yield torch.autocast(device, enabled=False)
    if "torch._dynamo" in sys.modules:  # compiled code has no double backward
        yield EAGER.turned()
    if second_order:  # fused attention and cuDNN's recurrent layers have no double backward either
        yield MATH_ATTENTION.turned()
        if any(isinstance(m, nn.RNNBase) for m in modules):
            yield WITHOUT_CUDNN.turned()


def _disable_dropout(module: nn.Module) -> None:
    """Training mode without dropout.

    A module without parameters, buffers and children is put in eval mode, which disables dropout,
    stochastic depth and similar modules of any type. In recurrent layers, ``dropout`` is set to 0.
    """
    training = bool(module._parameters or module._buffers or module._modules)
    if module.training is not training:  # an assignment is slow
        module.training = training
    if isinstance(module, nn.RNNBase):
        module.dropout = 0.0


# types of attributes that need no copy: immutable ones, and OrderedDict, which holds hooks
_CONSTANT = {bool, int, float, str, tuple, type(None), OrderedDict}


class _Saved:
    """The attributes of modules; copies of the containers, tensors and generators among them."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.tables: list[tuple[dict[str, Any], dict[str, Any]]] = []  # torch's are of many types
        self.sequences: list[tuple[list[object], list[object]]] = []
        self.sets: list[tuple[set[object], set[object]]] = []
        self.tensors: list[tuple[Tensor, Tensor]] = []
        self.generators: list[tuple[torch.Generator, Tensor]] = []
        for module in modules:
            self._add(module)

    def _add(self, module: nn.Module) -> None:
        attributes = vars(module)
        own = module._parameters, module._buffers, module._modules
        self.tables.append((attributes, attributes.copy()))
        self.tables += [(table, dict(table)) for table in own if type(table) is not dict]
        for value in attributes.values():
            kind = type(value)
            if kind in _CONSTANT:
                continue
            if kind is dict:
                self.tables.append((value, value.copy()))
            elif kind is list:
                self.sequences.append((value, value.copy()))
            elif kind is set:
                self.sets.append((value, value.copy()))
            elif isinstance(value, Tensor) and not value.requires_grad:
                self.tensors.append((value, value.clone()))
            elif kind is torch.Generator:
                self.generators.append((value, value.get_state()))

    @torch.no_grad()
    def restore(self) -> None:
        """Restore everything."""
        for table, entries in self.tables:
            table.update(entries)
            if len(table) > len(entries):
                for key in table.keys() - entries.keys():
                    del table[key]
        for sequence, items in self.sequences:
            sequence[:] = items
        for members, kept in self.sets:
            members.clear()
            members.update(kept)
        for tensor, values in self.tensors:
            tensor.copy_(values)
        for generator, state in self.generators:
            generator.set_state(state)
