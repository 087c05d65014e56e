"""What the function mode replaces without scales and pieces, and the backward pass."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuroinit.kernels.context import KernelContext
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from tests.kernels.passes.derivatives import context_of, ours, wanted

torch.manual_seed(0)
X = torch.randn(3, 4, 5, 5)


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(), nn.Dropout3d(), nn.AlphaDropout(),
     nn.FeatureAlphaDropout(), nn.Dropout(inplace=True)],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_dropout_returns_its_input(layer):
    x = X[0] if isinstance(layer, nn.Dropout1d) else X
    with ReplacedLayers():
        assert layer.train()(x) is x
        assert F.dropout(input=x) is x
        assert torch.dropout(x, 0.5, True) is x


def test_native_dropout_is_left_to_torch():
    with ReplacedLayers():
        y, mask = torch.native_dropout(torch.ones(1000), 0.5, True)
    assert 0 < int(mask.sum()) < 1000
    assert float(y.max()) == 2


@pytest.mark.parametrize("context", [KernelContext(), context_of([X])], ids=["plain", "scales"])
def test_dropout_inside_attention_is_off(context):
    layer = nn.MultiheadAttention(4, 2, dropout=0.5)
    x, y = torch.randn(2, 5, 3, 4)
    expected = layer.eval()(x, y, y)
    with ReplacedLayers(context):
        torch.testing.assert_close(layer.train()(x, y, y), expected)
        torch.testing.assert_close(layer(x, x, x), layer.eval()(x, x, x))
        q = torch.randn(2, 2, 3, 4)
        plain = F.scaled_dot_product_attention(q, q, q)
        for args, kwargs in (((None, 0.9), {}), ((), {"dropout_p": 0.9})):
            found = F.scaled_dot_product_attention(q, q, q, *args, **kwargs)
            torch.testing.assert_close(found, plain)
        causal = F.scaled_dot_product_attention(q, q, q, None, 0.9, True)
        torch.testing.assert_close(causal, F.scaled_dot_product_attention(q, q, q, is_causal=True))


def replaced(function):
    def run(*args, **kwargs):
        with ReplacedLayers():
            return function(*args, **kwargs)

    return run


@pytest.mark.parametrize(
    "function",
    [lambda v: torch._weight_norm(v, v[:, :1].exp(), 0), lambda v: F.normalize(v),
     lambda v: F.normalize(v, dim=0, eps=1.5), lambda v: F.hardsigmoid(2 * v),
     lambda v: F.normalize(v, p=3.0), lambda v: torch._weight_norm(v, v[:1].exp(), 1)],
    ids=["weight_norm", "normalize", "large_eps", "hardsigmoid", "other_norm", "other_dim"],
)  # fmt: skip
def test_the_same_values_and_right_double_backwards(function):
    v = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(replaced(function)(v), function(v))
    assert torch.autograd.gradgradcheck(replaced(function), v)


def test_normalized_zeros_have_a_second_derivative():
    zero = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    normalize = replaced(F.normalize)
    (g,) = torch.autograd.grad(normalize(zero).sum(), zero, create_graph=True)
    (second,) = torch.autograd.grad(g.square().sum(), zero)
    torch.testing.assert_close(g.detach(), torch.full_like(g, 1e12))
    assert torch.isfinite(second).all()
    low = torch.zeros(2, 3, requires_grad=True)
    assert torch.isfinite(torch.autograd.grad(normalize(low, eps=0.0).sum(), low)[0]).all()


def test_normalize_is_replaced_by_the_same_function():
    normalize = replaced(F.normalize)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(normalize(x, dim=-1), F.normalize(x, dim=-1), rtol=1e-12)
    assert torch.allclose(normalize(x, p=1.0), F.normalize(x, p=1.0))
    assert torch.autograd.gradgradcheck(lambda x: normalize(x, dim=-1), x)
    zero = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)
    ours, theirs = (
        torch.autograd.grad(f(zero, dim=-1).sum(), zero)[0] for f in (normalize, F.normalize)
    )
    assert torch.allclose(ours, theirs)


def test_layers_with_scales_are_ours():
    """Otherwise the comparisons with plain autograd would compare torch with itself."""
    layers = [
        nn.Conv2d(4, 4, 3),
        nn.BatchNorm2d(4),
        nn.LayerNorm(3),
        nn.Flatten(),
        nn.Linear(36, 2),
    ]
    model = nn.Sequential(*layers)
    with ReplacedLayers(context_of(list(model.parameters()))):
        y = model(X)
    waiting, names = [y.grad_fn], set()
    while waiting:
        node = waiting.pop()
        names.add(type(node).__name__)
        waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
    assert {"_LayerBackward", "_BatchNormBackward", "_LayerNormBackward"} <= names
    assert not names & {"ConvolutionBackward0", "NativeBatchNormBackward0", "AddmmBackward0"}


def test_gradients_of_vectors():
    x, unused = torch.randn(3, requires_grad=True), torch.randn(2, requires_grad=True)
    y, v = x.exp(), torch.randn(3)
    by_x, nothing = differentiate([y], [x, unused], [v], retain_graph=True)
    torch.testing.assert_close(by_x, v * y.detach())
    assert nothing is None
    assert not by_x.requires_grad
    (ones,) = differentiate([y], [x], create_graph=True)
    torch.testing.assert_close(differentiate([ones], [x], [v])[0], v * y.detach())
    with pytest.raises(RuntimeError, match="second time"):
        differentiate([y], [x])
    assert x.grad is None


def test_sparse_gradients_are_made_dense():
    weight = torch.randn(5, 2, requires_grad=True)
    y = F.embedding(torch.tensor([1, 1]), weight, sparse=True)
    (g,) = differentiate([y], [weight])
    assert not g.is_sparse
    assert torch.equal(g, torch.tensor([[0.0, 0], [2, 2], [0, 0], [0, 0], [0, 0]]))


def test_the_context_is_reset_after_an_error():
    context = context_of([X])
    with pytest.raises(RuntimeError, match="does not require grad"):
        differentiate([torch.ones(())], [torch.ones(())], context=context)
    assert not context.first_backward


class Block(nn.Module):
    """Checkpointed, with dropout and layers that are ours."""

    def __init__(self, again):
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(), nn.Tanh())
        self.again = again

    def forward(self, x):
        if self.again:
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner.eval()(x)


def test_checkpointed_layers_run_again_as_they_did():
    x = torch.randn(6, 4, dtype=torch.float64)
    models = [Block(True).double(), Block(False).double()]
    found = ours(models[0], lambda: models[0](x).square().sum())
    expected = wanted(models[1], lambda: models[1](x).square().sum())
    torch.testing.assert_close(found.gradients, expected.gradients)
    torch.testing.assert_close(found.derivative, expected.derivative)
