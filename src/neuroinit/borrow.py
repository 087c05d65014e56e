"""Borrowing the user's model: quiet, differentiable twice, and given back as it was."""

from __future__ import annotations

import functools
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from neuroinit.activations import ACTIVATIONS, activated
from neuroinit.layer_norm import layer_normalized
from neuroinit.marks import Marks
from neuroinit.normalize import normalized
from neuroinit.products import READERS, marked
from neuroinit.spread import SPREAD, spread
from neuroinit.vectors import HALF

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
    saved = [_Saved(module) for module in modules]
    with ExitStack() as stack:
        stack.enter_context(isolated())
        stack.callback(_twice, _restore, saved)
        for module in modules:
            _quiet(module)
        for context in _contexts(modules, second_order):
            stack.enter_context(context)
        yield [
            (m, key, widen(b)) for m in modules for key, b in m._buffers.items() if b is not None
        ]


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


class Replaced(TorchFunctionMode):
    """Dropout returns its input; weight_norm, normalize and hardsigmoid are plain operators.

    It is to be active where the model's code runs: in its forward pass, and in backward passes for
    checkpointed modules, which run it again.

    torch's fused ``_weight_norm`` has a wrong double backward (2.13, CPU, float64: it fails
    ``torch.autograd.gradgradcheck``), ``hardsigmoid`` has none, and that of ``normalize`` is not
    finite for a vector of zeros. Sparse gradients of embeddings have wrong third derivatives
    (2.13); dense ones are right.

    Args:
        marks: Weights whose products are ours, see :mod:`neuroinit.products`.
    """

    def __init__(self, marks: Marks | None = None) -> None:
        super().__init__()
        self.marks = Marks() if marks is None else marks

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if not _watched(name) or (name in SPREAD and self.marks.rows is None):
            return func(*args, **kwargs)
        if self.marks and (ours := self._ours(func, args, kwargs)) is not None:
            return ours
        if "dropout" in name and not name.startswith("native"):
            return args[0] if args else kwargs["input"]
        if name == "_weight_norm":
            return _weight_norm(*args, **kwargs)
        if name == "normalize":
            return _normalize(*args, **kwargs)
        if name == "hardsigmoid":
            return nn.functional.relu6((args[0] if args else kwargs["input"]) + 3) / 6
        if name in _DROPOUT_ARGUMENT:
            return func(*_without_dropout(_DROPOUT_ARGUMENT[name], args, kwargs), **kwargs)
        if name in ("embedding", "embedding_bag") and "sparse" in kwargs:
            kwargs["sparse"] = False
        return func(*args, **kwargs)

    def _ours(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is nn.functional.batch_norm:
            return normalized(args, kwargs, self.marks)
        if func is nn.functional.layer_norm:
            return layer_normalized(args, kwargs, self.marks)
        name = getattr(func, "__name__", "")
        if name in ACTIVATIONS:
            return activated(name, args, kwargs)
        found = marked(name, args, kwargs, self.marks)
        return spread(func, args, kwargs, self.marks) if found is None else found


@functools.cache
def _watched(name: str) -> bool:
    """Whether a function of this name can be replaced: most calls are of others."""
    return "dropout" in name or name in _WATCHED


# functions that drop out by themselves, and where the probability stands among their arguments
_DROPOUT_ARGUMENT = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}
_PLAIN = {"_weight_norm", "normalize", "hardsigmoid", "embedding", "embedding_bag"}
_NORMS = {"batch_norm", "layer_norm"}
_WATCHED = {*ACTIVATIONS, *READERS, *SPREAD, *_DROPOUT_ARGUMENT, *_PLAIN, *_NORMS}


def _without_dropout(position: int, args: Any, kwargs: dict[str, Any]) -> Any:
    if len(args) <= position:
        kwargs["dropout_p"] = 0.0
        return args
    return (*args[:position], 0.0, *args[position + 1 :])


def differentiate(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    vectors: Sequence[Tensor] | None = None,
    create_graph: bool = False,
    retain_graph: bool = False,
    marks: Marks | None = None,
) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad``, dense, with :class:`Replaced` active where checkpoints run again.

    ``torch.autograd.grad`` can itself be overridden by a mode and switches modes off inside, hence
    the call of the engine below it.
    """
    if vectors is None:
        vectors = [torch.ones_like(output) for output in outputs]
    with Replaced(marks):
        engine = torch.autograd.Variable._execution_engine
        found: tuple[Tensor | None, ...] = engine.run_backward(
            tuple(outputs),
            tuple(vectors),
            retain_graph or create_graph,
            create_graph,
            tuple(inputs),
            allow_unreachable=True,
            accumulate_grad=False,
        )
    return tuple(g.to_dense() if g is not None and g.is_sparse else g for g in found)


def _normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``F.normalize`` with a second derivative at zero, where a norm has none (padded tokens)."""
    if p != 2.0 or out is not None:
        return nn.functional.normalize(input, p, dim, eps, out)
    squared = input.square().sum(dim, keepdim=True).clamp_min(max(eps**2, _least(input)))
    return input * squared.rsqrt()


def _least(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).tiny


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _quiet(module: nn.Module) -> None:
    """Training mode without dropout.

    A module without parameters, buffers or children has nothing to learn in training mode: eval
    mode silences dropout, stochastic depth and their like without knowing their types. Recurrent
    layers keep their dropout as a number.
    """
    module.training = bool(module._parameters or module._buffers or module._modules)
    if isinstance(module, nn.RNNBase):
        module.dropout = 0.0


class _Saved:
    """What a module holds: its attributes, and the contents of those that can change in place."""

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
        """Put everything back; can be done any number of times."""
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


def _twice(function: Callable[..., None], *arguments: Any) -> None:
    """Run what can be repeated to its end, even if Ctrl-C is pressed in the middle."""
    try:
        function(*arguments)
    except BaseException:
        function(*arguments)
        raise


@contextmanager
def isolated() -> Iterator[None]:
    """Autograd works in whatever mode the caller is; random states come back as they were."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices), torch.inference_mode(False), torch.enable_grad():
        try:
            yield
        finally:
            _twice(random.setstate, python_state)
            if numpy:
                _twice(numpy.random.set_state, numpy_state)


def random_state() -> str:
    """The states of the CPU's generators as JSON."""
    found: dict[str, Any] = {
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
        "python": random.getstate(),
    }
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        found["numpy"] = [name, keys.tolist(), *rest]
    return json.dumps(found)


def set_random_state(text: str) -> None:
    """Continue from what :func:`random_state` found."""
    found = json.loads(text)
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(found["torch"])), dtype=torch.uint8))
    version, keys, gauss = found["python"]
    random.setstate((version, tuple(keys), gauss))
    if "numpy" in found and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(found["numpy"]))


def seed_all(seed: int) -> None:
    """Seed the generators in use; ``torch.manual_seed`` formats a stack trace for idle ones."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def widen(tensor: Tensor) -> Tensor:
    """Half precision is computed in float32."""
    return tensor.float() if tensor.dtype in HALF else tensor
