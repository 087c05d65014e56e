"""Formulas that are right to any order."""

import pytest
import torch
from torch import nn

from neuroinit.kernels.normalization.common import (
    are_plain,
    channel_shape,
    gradients,
    normalize,
    standardize,
)

torch.manual_seed(0)
X = torch.randn(3, 4, 2, dtype=torch.float64)


@pytest.mark.parametrize("dims", [(0,), (1, 2), (0, 2)])
def test_standardized_values_have_the_given_statistics(dims):
    y, rstd = standardize(X, dims, 0.0)
    torch.testing.assert_close(y.mean(dims), torch.zeros_like(y.mean(dims)))
    torch.testing.assert_close(y.var(dims, correction=0), torch.ones_like(y.mean(dims)))
    wanted = (X.var(dims, correction=0, keepdim=True) + 0.7).pow(-0.5)
    torch.testing.assert_close(standardize(X, dims, 0.7)[1], wanted)
    assert rstd.shape == wanted.shape


@pytest.mark.parametrize("gain", [None, torch.rand(2, dtype=torch.float64)])
@pytest.mark.parametrize("bias", [None, torch.rand(2, dtype=torch.float64)])
def test_gradients_are_those_of_autograd(gain, bias):
    x, gy = X.clone().requires_grad_(), torch.randn_like(X)
    y = normalize(x, (1,), gain, bias, 0.1)
    plain = standardize(X, (1,), 0.1)[0]
    wanted = (1 if gain is None else gain) * plain + (0 if bias is None else bias)
    torch.testing.assert_close(y.detach(), wanted)
    found, product = gradients(gy, X, gain, (1,), 0.1)
    torch.testing.assert_close(found, torch.autograd.grad(y, x, gy)[0])
    torch.testing.assert_close(product, gy * plain)


def test_one_value_for_every_channel():
    assert channel_shape(torch.zeros(2, 3)) == (-1,)
    assert channel_shape(torch.zeros(2, 3, 4, 5)) == (-1, 1, 1)


def test_subclasses_are_not_plain():
    class Own(torch.Tensor):
        pass

    assert are_plain(torch.zeros(1), None, nn.Parameter(torch.zeros(1)))
    assert not are_plain(torch.zeros(1), torch.zeros(1).as_subclass(Own))
