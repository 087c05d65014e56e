"""Layers of torch that are one call, taken apart into those that tell pieces apart.

Multi-head attention is two linear layers around an attention without parameters; GroupNorm,
InstanceNorm and RMSNorm are followed by a gain and a bias for every channel. An embedding has its
own gradient by piece.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.broadcasting import spread
from neuroinit.kernels.context import KernelContext, Saved, Slices, by_slice, without_function_mode

_ATTENTION = inspect.signature(F.multi_head_attention_forward)
_SPECIAL = ("bias_k", "bias_v", "static_k", "static_v", "add_zero_attn", "use_separate_proj_weight")


def attended(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of ``F.multi_head_attention_forward``; ``None`` where it is no plain self-attention.

    Linear layers and attention are called as a model would call them. Samples come first inside,
    and are the second dimension outside, as torch has it.
    """
    bound = _ATTENTION.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    query, heads = given["query"], given["num_heads"]
    itself = query is given["key"] and query is given["value"] and query.dim() == 3
    if not itself or any(given[name] not in (None, False) for name in _SPECIAL):
        return None
    mask = _mask(given, query)
    x = query.transpose(0, 1)
    joined = F.linear(x, given["in_proj_weight"], given["in_proj_bias"])
    q, k, v = joined.view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    weights = None
    if given["need_weights"]:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        y = weights @ v
        weights = weights.mean(1) if given["average_attn_weights"] else weights
    else:
        y = F.scaled_dot_product_attention(q, k, v, mask)
    y = F.linear(y.transpose(1, 2).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    return y.transpose(0, 1), weights


def _mask(given: dict[str, Any], query: Tensor) -> Tensor | None:
    """What is added to the scores, in a shape that broadcasts to ``(samples, heads, L, L)``."""
    length, samples = query.shape[:2]
    attention, padding = given["attn_mask"], given["key_padding_mask"]
    found = None
    if attention is not None:
        if attention.dim() == 3:
            attention = attention.view(samples, -1, length, length)
        found = _added(attention, query)
    if padding is not None:
        own = _added(padding, query).view(samples, 1, 1, -1)
        found = own if found is None else found + own
    return found


def _added(mask: Tensor, query: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(query.dtype)
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask, -torch.inf)


def normed(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext
) -> Tensor | None:
    """A call of ``F.group_norm``, ``F.instance_norm`` or ``F.rms_norm`` with a gain.

    ``None`` where several pieces are not taken at once, or it has none.
    """
    if context.pieces is None:
        return None
    function = getattr(F, name)
    bound = inspect.signature(function).bind(*args, **kwargs)
    given = bound.arguments
    weight, bias = given.pop("weight", None), given.pop("bias", None)
    if weight is None:
        return None
    x = given["input"]
    shape = weight.shape if name == "rms_norm" else (1, -1, *[1] * (x.dim() - 2))
    y: Tensor = function(**given)
    for operator, parameter in ((torch.mul, weight), (torch.add, bias)):
        if parameter is not None:
            y = _each(operator, y, parameter, shape, context)
    return y


def _each(operator: Any, y: Tensor, p: Tensor, shape: Any, context: KernelContext) -> Tensor:
    """``y + p`` or ``y * p`` with ``p`` in another shape."""
    own = spread(Tensor.view, (p, shape), {}, context)
    found = None if own is None else spread(operator, (y, own), {}, context)
    return torch.as_tensor(operator(y, p.view(shape)) if found is None else found)


def embedded(
    args: tuple[Any, ...], kwargs: dict[str, Any], context: KernelContext
) -> Tensor | None:
    """A call of ``F.embedding``; ``None`` for one that changes its table or counts its entries.

    One index for every place of a sample, as of words, has samples first. One that is the same for
    all samples, as of positions, has them not, or as a dimension of one.
    """
    return _embedding(*args, context=context, **kwargs)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    context: KernelContext,
) -> Tensor | None:
    pieces = context.pieces
    if (
        pieces is None
        or max_norm is not None
        or scale_grad_by_freq
        or id(weight) not in pieces.leaves
    ):
        return None
    leaf = pieces.leaves[id(weight)]
    if input.dim() == 1 or len(input) == 1 < pieces.intervals[-1][1]:
        made = F.embedding(input, weight, padding_idx)
        parts = [F.embedding(input, own, padding_idx) for own in leaf]
        pieces.derived[id(made)] = made, torch.stack(parts)
        return made
    padding = -1 if padding_idx is None else padding_idx % len(weight)
    settings = leaf, input, padding, context, pieces.slices(input)
    found: Tensor = _Embedding.apply(weight, *settings)  # type: ignore[no-untyped-call]
    return found


class _Embedding(torch.autograd.Function):
    """Looked up in a table; the gradient by piece the first time, then the sum."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        leaf: Tensor,
        index: Tensor,
        padding: int,
        context: KernelContext,
        slices: Slices,
    ) -> Tensor:
        ctx.save_for_backward(index)
        ctx.count, ctx.padding, ctx.context, ctx.slices = len(weight), padding, context, slices
        return F.embedding(index, weight)

    @staticmethod
    @without_function_mode
    def backward(ctx: Any, saved: Saved, g: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = saved

        def by_table(g: Tensor, index: Tensor) -> Tensor:
            found: Tensor = torch.ops.aten.embedding_dense_backward(
                g, index, ctx.count, ctx.padding, False
            )
            return found

        if ctx.context.second_backward:
            return by_table(g, index), None, None, None, None, None
        return None, by_slice(by_table, ctx.slices, g, index), None, None, None, None
