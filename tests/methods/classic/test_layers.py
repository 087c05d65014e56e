"""What a parameter is, how many inputs and outputs it connects, and the gains of activations."""

import math

import pytest
from torch import nn

from neuroinit.methods.classic.gains import activation_gain, layer_gains
from neuroinit.methods.classic.layers import fans, matrices_in


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(5, 7), (5, 7)),
        (nn.Conv2d(6, 8, 3), (54, 72)),
        (nn.Conv2d(6, 8, 3, groups=2), (27, 36)),
        (nn.ConvTranspose2d(6, 8, 3, groups=2), (27, 36)),
        (nn.Bilinear(3, 4, 5), (12, 5)),
    ],
)
def test_fans(module, expected):
    assert fans(module, module.weight, matrices_in(module, "weight")) == expected


@pytest.mark.parametrize(
    "module",
    [nn.RNN(6, 5), nn.LSTM(6, 5), nn.GRU(6, 5), nn.RNNCell(6, 5), nn.LSTMCell(6, 5),
     nn.GRUCell(6, 5)],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_every_gate_has_fans_of_its_own(module):
    for name, inputs in (("weight_ih", 6), ("weight_hh", 5)):
        key = next(n for n, _ in module.named_parameters() if n.startswith(name))
        assert fans(module, getattr(module, key), matrices_in(module, key)) == (inputs, 5)


@pytest.mark.parametrize(
    ("module", "gain"),
    [
        (nn.ReLU(), math.sqrt(2)),
        (nn.LeakyReLU(0.3), math.sqrt(2 / 1.09)),
        (nn.Tanh(), 5 / 3),
        (nn.Hardtanh(-1e9, 1e9), 1.0),  # the identity
        (nn.ReLU6(), math.sqrt(2)),  # nearly a ReLU
        (nn.GELU(), 1.5335),  # 1 / sqrt(E gelu(z)^2), by quadrature elsewhere
        (nn.Softmax(-1), None),
        (nn.Linear(2, 2), None),
        (nn.MultiheadAttention(2, 1).out_proj, None),
    ],
)
def test_gains(module, gain):
    assert activation_gain(module) == (None if gain is None else pytest.approx(gain, rel=1e-3))


def test_a_layer_has_the_gain_of_the_activation_after_it():
    model = nn.Sequential(
        nn.Linear(2, 2), nn.LayerNorm(2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2),
        nn.ReLU(), nn.Linear(2, 2),
    )  # fmt: skip
    gains = layer_gains(model)
    expected = [5 / 3, math.sqrt(2), math.sqrt(2), math.sqrt(2)]
    assert [gains[model[k]] for k in (0, 3, 5, 7)] == pytest.approx(expected)
    assert list(layer_gains(nn.Linear(2, 2)).values()) == [None]
