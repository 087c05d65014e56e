"""Functions of torch that are replaced while a model runs: by quiet ones, or by ones of our own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from neuroinit.kernels.activations import ACTIVATIONS, activated
from neuroinit.kernels.batch_norm import normalized
from neuroinit.kernels.broadcasting import SPREAD, spread
from neuroinit.kernels.composed_layers import attended, embedded, normed
from neuroinit.kernels.context import KernelContext
from neuroinit.kernels.layer_norm import layer_normalized
from neuroinit.kernels.products import READERS, marked


class ReplacedLayers(TorchFunctionMode):
    """Dropout returns its input; weight_norm, normalize and hardsigmoid are plain operators.

    It is to be active where the model's code runs: in its forward pass, and in backward passes for
    checkpointed modules, which run it again.

    torch's fused ``_weight_norm`` has a wrong double backward (2.13, CPU, float64: it fails
    ``torch.autograd.gradgradcheck``), ``hardsigmoid`` has none, and that of ``normalize`` is not
    finite for a vector of zeros. Sparse gradients of embeddings have wrong third derivatives
    (2.13); dense ones are right.

    Args:
        context: Weights whose products are ours, see :mod:`neuroinit.kernels.products`.
    """

    def __init__(self, context: KernelContext | None = None) -> None:
        super().__init__()
        self.context = KernelContext() if context is None else context

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if not _watched(name) or (name in SPREAD and self.context.pieces is None):
            return func(*args, **kwargs)
        if self.context and (ours := self._ours(func, args, kwargs)) is not None:
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
            return normalized(args, kwargs, self.context)
        if func is nn.functional.layer_norm:
            return layer_normalized(args, kwargs, self.context)
        if func is nn.functional.multi_head_attention_forward:
            with self:
                return attended(args, kwargs)
        name = getattr(func, "__name__", "")
        if name in ACTIVATIONS:
            return activated(name, args, kwargs)
        if name in _AFFINE:
            return normed(name, args, kwargs, self.context)
        if name == "embedding":
            return embedded(args, kwargs, self.context)
        found = marked(name, args, kwargs, self.context)
        return spread(func, args, kwargs, self.context) if found is None else found


@functools.cache
def _watched(name: str) -> bool:
    """Whether a function of this name can be replaced: most calls are of others."""
    return "dropout" in name or name in _WATCHED


# functions that drop out by themselves, and where the probability stands among their arguments
_DROPOUT_ARGUMENT = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}
_PLAIN = {"_weight_norm", "normalize", "hardsigmoid", "embedding", "embedding_bag"}
_AFFINE = {"group_norm", "instance_norm", "rms_norm"}
_NORMS = {"batch_norm", "layer_norm", *_AFFINE}
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
    context: KernelContext | None = None,
) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad``, dense, with :class:`ReplacedLayers` active where checkpoints run again.

    ``torch.autograd.grad`` can itself be overridden by a mode and switches modes off inside, hence
    the call of the engine below it.
    """
    if vectors is None:
        vectors = [torch.ones_like(output) for output in outputs]
    with ReplacedLayers(context):
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
