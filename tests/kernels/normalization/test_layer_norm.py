"""Which calls of ``F.layer_norm`` are ours."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.kernels.context import KernelContext, NotSeparableError, PieceParameters
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from neuroinit.kernels.normalization.layer_norm import layer_norm

torch.manual_seed(0)
X = torch.randn(4, 5, 3)
ONES = torch.ones(3)


def test_calls_that_are_left_to_torch():
    context = KernelContext()
    assert layer_norm(X, (3,), ONES.double(), None, context=context) is None
    assert layer_norm(X, (3,), ONES, ONES.double(), context=context) is None
    assert layer_norm(X, (3,), None, ONES, context=context) is None
    assert layer_norm(X[:0], (3,), ONES, ONES, context=context) is None
    for weight, bias in ((None, None), (ONES, None), (ONES, 2 * ONES)):
        found = layer_norm(X, (3,), weight, bias, context=context)
        torch.testing.assert_close(found, F.layer_norm(X, (3,), weight, bias))


def test_autocast_is_left_to_torch():
    layer = nn.LayerNorm(3)
    with torch.autocast("cpu", torch.bfloat16):
        expected = layer(X.bfloat16())
        with ReplacedLayers():
            found = layer(X.bfloat16())
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def pieces_of(layer, *intervals):
    leaves = [
        p.detach().expand(len(intervals), *p.shape).requires_grad_() for p in layer.parameters()
    ]
    found = dict(zip(map(id, layer.parameters()), leaves, strict=True))
    return KernelContext(pieces=PieceParameters(intervals, found)), leaves


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_pieces_with_a_frozen_gain(create_graph):
    layer = nn.LayerNorm(3)
    layer.weight.requires_grad_(False)
    context, (gain, bias) = pieces_of(layer, (0, 1), (1, 4))
    with ReplacedLayers(context):
        loss = layer(X).pow(3).sum()
    found = differentiate([loss], [gain, bias], create_graph=create_graph, context=context)
    expected = [torch.autograd.grad(layer(x).pow(3).sum(), layer.bias)[0] for x in (X[:1], X[1:])]
    assert found[0] is None
    torch.testing.assert_close(found[1], torch.stack(expected))


def test_samples_have_to_come_first():
    """The rows are a multiple of the number of samples, the first dimension is not."""
    layer = nn.LayerNorm(3)
    context, _ = pieces_of(layer, (0, 2), (2, 4))
    with ReplacedLayers(context), pytest.raises(NotSeparableError):
        layer(X.transpose(0, 1))
