"""Multi-head attention as two linear layers around an attention without parameters."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.kernels.context import transforms_active

_ATTENTION = inspect.signature(F.multi_head_attention_forward)
_SPECIAL = ("bias_k", "bias_v", "static_k", "static_v", "add_zero_attn", "use_separate_proj_weight")


def multi_head_attention(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor | None] | None:
    """The result of ``F.multi_head_attention_forward`` for self-attention; else ``None``.

    It calls ``F.linear`` and ``F.scaled_dot_product_attention``, which the function mode replaces
    in turn. Dropout is off.

    Args:
        args: The positional arguments of torch's function; query, key and value are one tensor of
            shape ``(L, samples, features)``.
        kwargs: Its keyword arguments.

    Returns:
        The output, of the shape of the query; and the attention weights of shape ``(samples, L,
        L)`` or ``(samples, heads, L, L)``, if they are requested.
    """
    bound = _ATTENTION.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    query, heads = given["query"], given["num_heads"]
    itself = query is given["key"] and query is given["value"] and query.dim() == 3
    special = any(given[name] is not None and given[name] is not False for name in _SPECIAL)
    if not itself or special or transforms_active():
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
    """The sum of both masks, in a shape that broadcasts to ``(samples, heads, L, L)``."""
    length, samples = query.shape[:2]
    attention, padding = given["attn_mask"], given["key_padding_mask"]
    total = None
    if attention is not None:
        if attention.dim() == 3:
            attention = attention.view(samples, -1, length, length)
        total = _additive(attention, query)
    if padding is not None:
        padding = _additive(padding, query).view(samples, 1, 1, -1)
        total = padding if total is None else total + padding
    return total


def _additive(mask: Tensor, query: Tensor) -> Tensor:
    """A mask that is added to the scores: minus infinity where a boolean mask is set."""
    if mask.dtype != torch.bool:
        return mask.to(query.dtype)
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask, -torch.inf)
