"""Operators against autograd, inner products, and how torch's functions are called."""

import pytest
import torch
import torch.nn.functional as F

from neuroinit.kernels.products.bilinear import READERS, Convolution, Linear, inner_product

torch.manual_seed(0)
CALLS = {
    "linear": (F.linear, (5, 2, 4), (3, 4), {}),
    "conv1d": (F.conv1d, (2, 4, 7), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    "conv2d": (F.conv2d, (2, 4, 7, 6), (6, 4, 3, 2), {"stride": (2, 1), "dilation": [1, 2]}),
    "conv3d": (F.conv3d, (2, 1, 4, 4, 3), (2, 1, 2, 2, 2), {"padding": (1, 0, 1)}),
    "conv_transpose1d": (F.conv_transpose1d, (2, 4, 5), (4, 3, 3), {"dilation": 2}),
    "conv_transpose2d": (
        F.conv_transpose2d,
        (2, 4, 5, 4),
        (4, 3, 3, 2),
        {"stride": 3, "padding": 1, "output_padding": (1, 2), "groups": 2},
    ),
    "conv_transpose3d": (F.conv_transpose3d, (2, 1, 3, 3, 2), (1, 2, 2, 2, 2), {"stride": (2,)}),
}


def double(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", CALLS)
def test_operators_are_torchs_functions(name):
    func, shape, weight_shape, settings = CALLS[name]
    x, w = double(*shape), double(*weight_shape)
    y = func(x, w, **settings)
    b = double(y.shape[-1] if name == "linear" else y.shape[1])
    input, weight, bias, operator = READERS[name](x, w, b, **settings)
    assert (input is x, weight is w, bias is b) == (True, True, True)
    y = func(x, w, b, **settings)
    torch.testing.assert_close(operator.forward(x, w, b), y)
    gy = torch.randn_like(y)
    gx, gw, gb = torch.autograd.grad(y, [x, w, b], gy)
    torch.testing.assert_close(operator.input_gradient(gy, x, w), gx)
    torch.testing.assert_close(operator.weight_gradient(gy, x, w), gw)
    torch.testing.assert_close(operator.bias_gradient(gy), gb)


def test_positional_arguments():
    x, w = torch.zeros(1, 4, 8, 8), torch.zeros(4, 2, 3, 3)
    *_, operator = READERS["conv2d"](x, w, None, 2, 1, 3, 2)
    assert operator == Convolution((2, 2), (1, 1), (3, 3), False, (0, 0), 2)
    *_, operator = READERS["conv_transpose2d"](x, w, None, 2, 1, 1, 2, 3)
    assert operator == Convolution((2, 2), (1, 1), (3, 3), True, (1, 1), 2)
    *_, operator = READERS["linear"](torch.zeros(2, 3), torch.zeros(4, 3))
    assert operator == Linear()


def test_a_sum_of_a_bias_and_a_product_is_a_layer():
    b, x, w = double(3), double(5, 4), double(4, 3)
    input, weight, bias, operator = READERS["addmm"](b, x, w)
    assert (input is x, weight is w, bias is b) == (True, True, True)
    torch.testing.assert_close(operator.forward(x, w, b), torch.addmm(b, x, w))


@pytest.mark.parametrize("settings", [{"beta": 2}, {"alpha": 2}, {"beta": 2, "alpha": 2}])
def test_other_sums_of_products_are_left_to_torch(settings):
    *_, operator = READERS["addmm"](double(3), double(5, 4), double(4, 3), **settings)
    assert operator is None
    *_, operator = READERS["addmm"](double(5, 3), double(5, 4), double(4, 3))
    assert operator is None


@pytest.mark.parametrize(
    ("name", "shape", "settings"),
    [("conv2d", (1, 2, 5, 5), {"padding": "same"}), ("conv2d", (2, 5, 5), {}),
     ("conv_transpose2d", (2, 5, 5), {})],
)  # fmt: skip
def test_calls_that_are_left_to_torch(name, shape, settings):
    *_, operator = READERS[name](torch.zeros(shape), torch.zeros(2, 2, 3, 3), **settings)
    assert operator is None


def layouts():
    a, b = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    last = torch.channels_last
    yield a, b
    yield a.contiguous(memory_format=last), b.contiguous(memory_format=last)
    yield a.contiguous(memory_format=last), b
    yield a[:, :, ::2], b[:, :, ::2]
    yield a.transpose(0, 1), b.transpose(0, 1)
    yield a[:, :1].expand(2, 3, 4, 5), b[:, :1].expand(2, 3, 4, 5)
    yield a[0], b[0]


@pytest.mark.parametrize(("a", "b"), list(layouts()))
def test_inner_products_of_any_layout(a, b):
    wanted = sum(x * y for x, y in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True))
    found = inner_product(a, b)
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    assert float(inner_product(a.double(), b.double())) == pytest.approx(wanted, rel=1e-12)


def test_inner_products_of_half_precision_are_summed_in_double():
    a = torch.full((4097,), 1.0, dtype=torch.bfloat16)
    assert float(inner_product(a, a)) == 4097
