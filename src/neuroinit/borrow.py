"""Borrowing the user's model: quiet, differentiable twice, and given back as it was."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

Buffers = list[tuple[nn.Module, str, Tensor]]


@contextmanager
def borrowed(model: nn.Module, second_order: bool = False) -> Iterator[Buffers]:
    """Training mode, modules' dropout off; on leaving, every attribute of every module comes back.

    The parameters and buffers may be replaced meanwhile. The backward passes have to run inside as
    well: checkpointed modules run their forward pass again there.

    Args:
        model: The user's module.
        second_order: Use kernels that can be differentiated twice.

    Yields:
        The buffers, half precision widened, and where they belong.
    """
    modules = list(model.modules())
    saved = [
        (m, dict(vars(m)), dict(m._parameters), dict(m._buffers), dict(m._modules)) for m in modules
    ]
    with ExitStack() as stack:
        stack.enter_context(isolated())
        stack.callback(_restore, saved)
        for module in modules:
            _quiet(module)
        for context in _contexts(modules, second_order):
            stack.enter_context(context)
        yield [
            (m, key, widen(b)) for m in modules for key, b in m._buffers.items() if b is not None
        ]


def _contexts(modules: list[nn.Module], second_order: bool) -> Iterator[Any]:
    if "torch._dynamo" in sys.modules:  # compiled code has no double backward
        yield torch.compiler.set_stance("force_eager")
    if second_order:  # nor have fused attention and cuDNN's recurrent layers
        yield sdpa_kernel(SDPBackend.MATH)
        if any(isinstance(m, nn.RNNBase) for m in modules):
            yield torch.backends.cudnn.flags(enabled=False)


class Replaced(TorchFunctionMode):
    """Functional dropout returns its input, and weight_norm is made of plain operators.

    It is to be active where the model's code runs: in its forward pass, and in backward passes for
    checkpointed modules, which run it again.

    torch's fused ``_weight_norm`` has a wrong double backward (2.13, CPU, float64: it fails
    ``torch.autograd.gradgradcheck``).
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if "dropout" in name and not name.startswith("native"):
            return args[0] if args else kwargs["input"]
        if name == "_weight_norm":
            return _weight_norm(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            kwargs.pop("dropout_p", None)
            args = args[:4] + (0.0,) * (len(args) > 4) + args[5:]
        return func(*args, **kwargs)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _quiet(module: nn.Module) -> None:
    """Training mode without dropout.

    A module without parameters, buffers or children has nothing to learn in training mode: eval
    mode silences dropout, stochastic depth and their like without knowing their types. Recurrent
    and attention layers keep their dropout as a number.
    """
    module.training = bool(module._parameters or module._buffers or module._modules)
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        module.dropout = 0.0


_Saved = tuple[nn.Module, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


def _restore(saved: list[_Saved]) -> None:
    """Put back every attribute, parameter, buffer and sub-module entry of the modules."""
    for module, attributes, parameters, buffers, children in saved:
        _reset(vars(module), attributes)
        _reset(module._parameters, parameters)
        _reset(module._buffers, buffers)
        _reset(module._modules, children)


def _reset(table: Any, entries: dict[str, Any]) -> None:
    table.update(entries)
    for key in table.keys() - entries.keys():
        del table[key]


@contextmanager
def isolated() -> Iterator[None]:
    """Autograd works in whatever mode the caller is; Python's, numpy's and torch's random states
    come back as they were."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices), torch.inference_mode(False), torch.enable_grad():
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


def seed_all(seed: int) -> None:
    """Seed the generators in use; ``torch.manual_seed`` formats a stack trace for idle ones."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


HALF = (torch.bfloat16, torch.float16)


def widen(tensor: Tensor) -> Tensor:
    """Half precision is computed in float32."""
    return tensor.float() if tensor.dtype in HALF else tensor
