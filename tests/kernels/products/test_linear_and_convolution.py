"""Which calls are ours, and what they do beside the passes of ``test_passes.py``."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.kernels.context import KernelContext, PieceParameters
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from neuroinit.kernels.products.linear_and_convolution import linear_or_convolution
from tests.kernels.passes.derivatives import (
    assert_near,
    context_of,
    directions,
    ours,
    second_backward,
    wanted,
)


def call(x, w, context, name="linear", **settings):
    return linear_or_convolution(name, (x, w), settings, context)


def test_weights_with_a_scale_or_a_leaf_are_ours():
    x, w = torch.randn(4, 3), torch.randn(2, 3, requires_grad=True)
    leaf = w.detach().expand(2, 2, 3).requires_grad_()
    pieces = PieceParameters(((0, 1), (1, 4)), {id(w): leaf})
    assert call(x, w, KernelContext()) is None
    assert call(x, w, KernelContext(pieces=PieceParameters(((0, 4),), {}))) is None
    for context in (context_of([w]), KernelContext(pieces=pieces)):
        y = call(x, w, context)
        assert type(y.grad_fn).__name__ == "_LayerBackward"
        torch.testing.assert_close(y, F.linear(x, w))
    by_keyword = linear_or_convolution("linear", (), {"input": x, "weight": w}, context_of([w]))
    torch.testing.assert_close(by_keyword, F.linear(x, w))


def test_calls_that_are_left_to_torch():
    w = torch.randn(2, 3, requires_grad=True)
    assert call(torch.randn(4, 3).double(), w, context_of([w])) is None
    kernel = torch.randn(2, 3, 3, 3, requires_grad=True)
    x = torch.randn(4, 3, 5, 5)
    assert call(x, kernel, context_of([kernel]), "conv2d", padding="same") is None
    assert call(x, kernel, context_of([kernel]), "conv2d") is not None
    found = []
    torch.func.grad(lambda x: found.append(call(x, w, context_of([w]))) or x.sum())(
        torch.randn(4, 3)
    )
    assert found == [None]


@pytest.mark.parametrize("layer", [nn.Linear(3, 2), nn.Conv1d(3, 2, 1)])
def test_autocast(layer):
    """Products in the narrow dtype, gradients in that of the parameters."""
    x = torch.randn(4, 3, 5) if isinstance(layer, nn.Conv1d) else torch.randn(4, 3)
    context = context_of(list(layer.parameters()))
    with ReplacedLayers(context), torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        expected = type(layer).forward(layer, x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected)
    parameters = list(layer.parameters())
    found = differentiate(
        [y.float().square().sum()], parameters, create_graph=True, context=context
    )
    assert [g.dtype for g in found] == [torch.float32, torch.float32]
    plain = layer(x).square().sum()
    expected = torch.autograd.grad(plain, parameters, create_graph=True)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.3)
    derivative = second_backward(found, [torch.ones_like(g) for g in found], parameters, context)
    by_parameters = torch.autograd.grad(sum(g.sum() for g in expected), parameters)
    total = [(p * g).sum().double() for p, g in zip(parameters, by_parameters, strict=True)]
    torch.testing.assert_close(derivative, torch.stack(total).detach(), rtol=0.05, atol=0.3)


def test_the_output_can_be_changed_in_place():
    layer = nn.Linear(3, 2).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64)

    def loss():
        return layer(x).tanh_().square().sum()

    found, expected = ours(layer, loss), wanted(layer, loss)
    assert_near([found.derivative], [expected.derivative], 1e-10)


@pytest.mark.parametrize("left_out", range(4))
def test_weights_without_a_scale_are_differentiated_by_themselves(left_out):
    """As one whose scale is zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    parameters, x = list(model.parameters()), torch.randn(6, 3, dtype=torch.float64)
    context = context_of(parameters)
    del context.scales[id(parameters[left_out])]
    with ReplacedLayers(context):
        loss = model(x).square().mean()
    gradients = differentiate([loss], parameters, create_graph=True, context=context)
    scales = [context.scales.get(id(p)) for p in parameters]
    context.second_backward = True
    inputs = [*parameters, *(s for s in scales if s is not None)]
    found = differentiate(gradients, inputs, directions(gradients), context=context)
    by_scale = iter(found[4:])
    total = torch.stack([
        (0.0 if g is None else (p * g).sum().detach())
        + (0.0 if s is None else next(by_scale) or 0.0)
        for p, g, s in zip(parameters, found, scales, strict=False)
    ])  # fmt: skip
    expected = wanted(model, lambda: model(x).square().mean())
    assert_near([total], [expected.derivative], 1e-10)


def test_only_some_outputs_are_followed():
    """The second backward of one gradient alone: by the weight, by the bias."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    parameters, x = list(model.parameters()), torch.randn(6, 3, dtype=torch.float64)
    for k in range(4):
        context = context_of(parameters)
        with ReplacedLayers(context):
            loss = model(x).square().mean()
        gradients = differentiate([loss], parameters, create_graph=True, context=context)
        v = torch.randn_like(gradients[k])
        found = second_backward([gradients[k]], [v], parameters, context)
        plain = torch.autograd.grad(model(x).square().mean(), parameters, create_graph=True)
        by = torch.autograd.grad((plain[k] * v).sum(), parameters, allow_unused=True)
        expected = [
            torch.zeros((), dtype=torch.float64) if g is None else (p * g).sum()
            for p, g in zip(parameters, by, strict=True)
        ]
        assert_near([found], [torch.stack(expected).detach()], 1e-10)
