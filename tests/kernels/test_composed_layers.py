"""Layers of one call that are taken apart: the same values and derivatives as in pieces."""

import pytest
import torch
import torch.nn.functional as F
from neuroinit.gradients.derivative import derivative
from torch import nn

from neuroinit.gradients.plan import make_plan
from neuroinit.kernels.composed_layers import attended
from neuroinit.model.problem import Problem

L, N, E, HEADS = 5, 6, 8, 2


class Words(nn.Module):
    """Words and positions, torch's transformer, a class for every word."""

    def __init__(self, causal=False):
        super().__init__()
        self.words, self.places = nn.Embedding(7, E, padding_idx=0), nn.Embedding(L, E)
        layer = nn.TransformerEncoderLayer(E, HEADS, 12, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.RMSNorm(E)
        self.head = nn.Linear(E, 3)
        mask = nn.Transformer.generate_square_subsequent_mask(L) if causal else None
        self.register_buffer("mask", mask)

    def forward(self, x):
        tokens = self.words(x) + self.places(torch.arange(L))
        mask = None if self.mask is None else self.mask.to(tokens.dtype)
        body = self.body(tokens, mask=mask, src_key_padding_mask=(x == 6).to(tokens) * -1e3)
        return self.head(self.norm(body)).mean(1)


class Norms(nn.Module):
    """GroupNorm and InstanceNorm over images."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.GELU(),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.InstanceNorm2d(4, affine=True),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64, 3),
        )

    def forward(self, x):
        return self.layers(x)


def words(n=N):
    torch.manual_seed(1)
    return torch.randint(7, (n, L)), torch.randint(3, (n,))


def images(n=N):
    torch.manual_seed(1)
    return torch.randn(n, 1, 4, 4, dtype=torch.float64), torch.randint(3, (n,))


@pytest.mark.parametrize("engine", ["keep", "stream"])
@pytest.mark.parametrize(
    ("build", "batch"),
    [(Words, words), (lambda: Words(causal=True), words), (Norms, images)],
    ids=["words", "causal", "norms"],
)
def test_in_one_pass_as_in_pieces(build, batch, engine):
    torch.manual_seed(0)
    model, data = build().double(), batch()
    found = []
    for tells in (None, False):
        problem = Problem(model, F.cross_entropy)
        problem.place(torch.linspace(0.6, 1.4, len(problem.scaled), dtype=torch.float64))
        problem.tells_pieces = tells
        plan = make_plan(problem, data, 3, 0.2, "cover", "sub-batch")
        found.append(derivative(problem, data, plan, lambda m: m.cosine + m.norm, engine))
        assert problem.tells_pieces is (tells is None)
    ours, wanted = found
    torch.testing.assert_close(ours.moments.norms, wanted.moments.norms, rtol=1e-10, atol=0)
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=1e-8, atol=1e-10)


def masks():
    torch.manual_seed(2)
    yield {}
    yield {"need_weights": False}
    yield {"average_attn_weights": False}
    yield {"attn_mask": torch.ones(L, L, dtype=torch.bool).triu(1), "need_weights": False}
    yield {"attn_mask": torch.ones(L, L, dtype=torch.bool).triu(1), "is_causal": True}
    yield {"attn_mask": torch.randn(L, L)}
    yield {"attn_mask": torch.randn(N * HEADS, L, L), "need_weights": False}
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[:, -1] = True
    yield {"key_padding_mask": padding}
    yield {"key_padding_mask": padding, "attn_mask": torch.randn(L, L) > 0.5}


@pytest.mark.parametrize("given", list(masks()), ids=lambda g: "-".join(g) or "plain")
@pytest.mark.parametrize("bias", [True, False])
def test_attention_is_torchs(given, bias):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(E, HEADS, bias=bias)
    if "attn_mask" in given and given["attn_mask"].dtype == torch.bool:
        given = {**given, "attn_mask": given["attn_mask"].clone().fill_diagonal_(False)}
    if "key_padding_mask" in given and "attn_mask" in given:  # no row without an entry
        given["attn_mask"][:, 0] = False
    x = torch.randn(L, N, E)
    parameters = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0)
    args = (x, x, x, E, HEADS, *parameters, layer.out_proj.weight, layer.out_proj.bias)
    ours = attended(args, given)
    wanted = F.multi_head_attention_forward(*args, **given)
    for a, b in zip(ours, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


def test_attention_to_something_else_is_left_to_torch():
    layer = nn.MultiheadAttention(E, HEADS)
    x, y = torch.randn(L, N, E), torch.randn(L, N, E)
    parameters = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0)
    args = (x, y, y, E, HEADS, *parameters, layer.out_proj.weight, layer.out_proj.bias)
    assert attended(args, {}) is None
    assert attended((x, x, x, *args[3:]), {}) is not None
    assert attended((x, x, x, *args[3:9], True, *args[10:]), {}) is None  # add_zero_attn
