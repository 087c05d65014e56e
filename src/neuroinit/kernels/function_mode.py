"""The function mode that replaces torch's layers while a model runs, and the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode

from neuroinit.kernels.attention import multi_head_attention
from neuroinit.kernels.broadcasting import BROADCASTING, broadcast_parameter
from neuroinit.kernels.context import KernelContext
from neuroinit.kernels.embedding import embedding
from neuroinit.kernels.inner_backward import STARTERS, inner_backward
from neuroinit.kernels.losses import LOSSES, loss_of_pieces
from neuroinit.kernels.normalization.batch_norm import batch_norm
from neuroinit.kernels.normalization.gain_and_bias import group_norm, instance_norm, rms_norm
from neuroinit.kernels.normalization.layer_norm import layer_norm
from neuroinit.kernels.products.bilinear import READERS
from neuroinit.kernels.products.linear_and_convolution import linear_or_convolution
from neuroinit.kernels.recurrent.layers import CELLS, recurrent
from neuroinit.kernels.sample_order import ORDERING


class ReplacedLayers(TorchFunctionMode):
    """Replaces functions of torch by others that return the same values.

    - Dropout returns its input.
    - ``weight_norm``, ``normalize``, ``hardsigmoid``, normalization layers and sparse embeddings
      get derivatives that are right to any order. torch's fused ``_weight_norm`` has a wrong double
      backward (2.13, CPU, float64: it fails ``torch.autograd.gradgradcheck``), ``hardsigmoid`` has
      none, and that of ``normalize`` is not finite for a vector of zeros. For the others see
      ``normalization/`` and ``embedding.py``.
    - With scales or pieces, layers with parameters compute the derivatives that ``context.py``
      describes.

    It has to be active where the model's code runs: in its forward pass, and in backward passes for
    checkpointed modules, which run it again.

    Args:
        context: Scales and pieces; none of them by default.
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
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func in STARTERS:
            self.context.check_inner_backward()
            done = inner_backward(self, func, args, kwargs)
            return func(*args, **kwargs) if done is None else done[0]
        found = self._replacement(func, name, args, kwargs) if _is_watched(name) else None
        return func(*args, **kwargs) if found is None else found

    def _replacement(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a call, or ``None`` if it is left to torch."""
        pieces = self.context.pieces
        if name in ORDERING and pieces is not None:
            found = func(*args, **kwargs)
            pieces.order.note(name, args, found)
            return found
        if name in BROADCASTING:
            if pieces is not None and name == "__getitem__":
                pieces.order.note_index(args[1])
            return broadcast_parameter(func, args, kwargs, self.context)
        if name in READERS:
            return linear_or_convolution(name, args, kwargs, self.context)
        if name in CELLS:
            with self:
                return recurrent(name, args, self.context)
        if func in LOSSES:
            return loss_of_pieces(func, args, kwargs, self.context)
        if func in _LAYERS:
            return _LAYERS[func](*args, **kwargs, context=self.context)
        if func is F.multi_head_attention_forward and self.context:
            with self:
                found = multi_head_attention(args, kwargs)
            if found is not None:
                return found
        if name in _DROPOUT_POSITION:
            return _call_without_dropout(func, _DROPOUT_POSITION[name], args, kwargs)
        if name in _PLAIN:
            return _PLAIN[name](*args, **kwargs)
        return (args[0] if args else kwargs["input"]) if _is_dropout(name) else None


@functools.cache
def _is_watched(name: str) -> bool:
    """Whether a function of this name may be replaced; a quick test, because most are not."""
    return name in _WATCHED or _is_dropout(name)


def _is_dropout(name: str) -> bool:
    return "dropout" in name and not name.startswith("native")


def _call_without_dropout(
    func: Any, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function with dropout probability zero; ``position`` is that of the argument."""
    if len(args) <= position:
        return func(*args, **{**kwargs, "dropout_p": 0.0})
    return func(*args[:position], 0.0, *args[position + 1 :], **kwargs)


def differentiate(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor | GradientEdge],
    vectors: Sequence[Tensor] | None = None,
    create_graph: bool = False,
    retain_graph: bool = False,
    context: KernelContext | None = None,
    dense: bool = True,
) -> tuple[Tensor | None, ...]:
    """The gradient of ``sum <outputs, vectors>`` by the inputs; ``None`` for unused inputs.

    As ``torch.autograd.grad``, with three differences: results are dense; :class:`ReplacedLayers`
    is active where checkpointed modules run again; and the context tells the replaced layers
    whether this is the first or the second backward. ``torch.autograd.grad`` disables function
    modes, so the autograd engine is called directly.

    Args:
        outputs: Tensors with a graph.
        inputs: The tensors to differentiate by, or places in the graph.
        vectors: Tensors of the shapes of the outputs; ones by default.
        create_graph: Whether the gradient can be differentiated again.
        retain_graph: Whether the graph of the outputs is used again.
        context: The context of the forward pass.
        dense: Whether sparse gradients, which some embeddings have, are made dense.
    """
    context = KernelContext() if context is None else context
    if vectors is None:
        vectors = [torch.ones_like(output) for output in outputs]
    with ReplacedLayers(context), context.differentiating():
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
    if not dense:
        return found
    return tuple(g.to_dense() if g is not None and g.is_sparse else g for g in found)


def differentiate_graphs(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    vectors: Sequence[Tensor],
    create_graph: bool,
    retain_graph: bool = False,
    context: KernelContext | None = None,
) -> tuple[Tensor | None, ...]:
    """As :func:`differentiate`, for outputs of which some may have no graph: these are ignored."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    with_graph, directions = zip(*pairs, strict=True)
    return differentiate(with_graph, inputs, directions, create_graph, retain_graph, context)


# -- the same values, from operators with correct derivatives -------------------------------------


def _normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``x / max(|x|, eps)`` with a second derivative at zero, where a norm has none."""
    if p != 2.0 or out is not None:
        return F.normalize(input, p, dim, eps, out)
    least = max(eps**2, torch.finfo(input.dtype).tiny)
    return input * input.square().sum(dim, keepdim=True).clamp_min(least).rsqrt()


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """``g v / |v|`` with the norms over all dimensions but one."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x + 3, 0), 6) / 6``."""
    return F.relu6(input + 3) / 6


_PLAIN: dict[str, Callable[..., Tensor]] = {
    "normalize": _normalize,
    "_weight_norm": _weight_norm,
    "hardsigmoid": _hardsigmoid,
}
# position of the dropout probability among the arguments
_DROPOUT_POSITION = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}
_LAYERS: dict[Any, Callable[..., Any]] = {
    F.batch_norm: batch_norm,
    F.layer_norm: layer_norm,
    F.instance_norm: instance_norm,
    F.group_norm: group_norm,
    F.rms_norm: rms_norm,
    F.embedding: embedding,
}
_WATCHED = {
    *READERS,
    *CELLS,
    *BROADCASTING,
    *ORDERING,
    *_DROPOUT_POSITION,
    *_PLAIN,
    *(function.__name__ for function in (*_LAYERS, *LOSSES)),
}
