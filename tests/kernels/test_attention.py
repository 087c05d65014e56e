"""Multi-head attention in parts: torch's values, and what is left to torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.kernels.attention import multi_head_attention

L, N, E, HEADS = 5, 6, 8, 2


def masks():
    torch.manual_seed(2)
    causal = torch.ones(L, L, dtype=torch.bool).triu(1)
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[:, -1] = True
    some = torch.randn(L, L) > 0.5
    some[:, 0] = False  # no row without an entry
    yield {}
    yield {"need_weights": False}
    yield {"average_attn_weights": False}
    yield {"attn_mask": causal, "need_weights": False}
    yield {"attn_mask": causal, "is_causal": True}
    yield {"attn_mask": torch.randn(L, L)}
    yield {"attn_mask": torch.randn(N * HEADS, L, L), "need_weights": False}
    yield {"key_padding_mask": padding}
    yield {"key_padding_mask": padding, "attn_mask": some}


def arguments(layer, x, key=None, add_zero_attn=False):
    """Of ``F.multi_head_attention_forward``, up to the output projection."""
    key = x if key is None else key
    special = layer.bias_k, layer.bias_v, add_zero_attn, 0.0
    projections = layer.in_proj_weight, layer.in_proj_bias, *special
    return (x, key, key, E, HEADS, *projections, layer.out_proj.weight, layer.out_proj.bias)


@pytest.mark.parametrize("given", list(masks()), ids=lambda g: "-".join(g) or "plain")
@pytest.mark.parametrize("bias", [True, False])
def test_values_are_torchs(given, bias):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(E, HEADS, bias=bias)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    args = arguments(layer, torch.randn(L, N, E))
    ours, wanted = multi_head_attention(args, given), F.multi_head_attention_forward(*args, **given)
    for a, b in zip(ours, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


def test_calls_that_are_left_to_torch():
    layer, x = nn.MultiheadAttention(E, HEADS), torch.randn(L, N, E)
    assert multi_head_attention(arguments(layer, x), {}) is not None
    assert multi_head_attention(arguments(layer, x, torch.randn(L, N, E)), {}) is None
    assert multi_head_attention(arguments(layer, x, add_zero_attn=True), {}) is None
    assert multi_head_attention(arguments(layer, x[:, 0]), {}) is None
    extra = nn.MultiheadAttention(E, HEADS, add_bias_kv=True)
    assert multi_head_attention(arguments(extra, x), {}) is None
    static = torch.randn(N * HEADS, L, E // HEADS)
    assert multi_head_attention(arguments(layer, x), {"static_k": static}) is None
    found = []
    torch.vmap(lambda x: found.append(multi_head_attention(arguments(layer, x), {})) or x)(x[None])
    assert found == [None]
