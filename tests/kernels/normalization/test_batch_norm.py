"""Which calls of ``F.batch_norm`` are ours, and running statistics."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.kernels.context import KernelContext
from neuroinit.kernels.function_mode import ReplacedLayers
from neuroinit.kernels.normalization.batch_norm import batch_norm

torch.manual_seed(0)
X = torch.randn(5, 3, 2)
ONES = torch.ones(3)


def test_calls_that_are_left_to_torch():
    context = KernelContext()
    assert batch_norm(X, ONES, ONES, training=False, context=context) is None
    double = ONES.double()
    assert batch_norm(X, None, None, double, None, True, context=context) is None
    assert batch_norm(X, None, None, None, double, True, context=context) is None
    assert batch_norm(X[:1, :, 0], None, None, training=True, context=context) is None
    assert batch_norm(X, None, None, ONES, ONES, True, context=context) is not None


def test_a_single_value_is_torchs_error():
    with ReplacedLayers(), pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3)(torch.randn(1, 3))


def test_running_statistics_and_defaults_are_torchs():
    ours, torchs = [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(3)]
    found = batch_norm(X, *ours, training=True, context=KernelContext())
    torch.testing.assert_close(found, F.batch_norm(X, *torchs, training=True))
    torch.testing.assert_close(ours, torchs)
    settings = {"training": True, "momentum": 0.7, "eps": 0.3}
    found = batch_norm(X, *ours, ONES, 2 * ONES, **settings, context=KernelContext())
    torch.testing.assert_close(found, F.batch_norm(X, *torchs, ONES, 2 * ONES, **settings))
    torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_frozen_gain_or_bias(frozen):
    layer = nn.BatchNorm1d(3)
    getattr(layer, frozen).requires_grad_(False)
    x = X.clone().requires_grad_()
    live = [x, *(p for p in layer.parameters() if p.requires_grad)]
    expected = torch.autograd.grad(layer(x).pow(3).sum(), live)
    with ReplacedLayers():
        found = torch.autograd.grad(layer(x).pow(3).sum(), live)
    torch.testing.assert_close(found, expected)
