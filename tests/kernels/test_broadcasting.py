"""Parameters that are added or multiplied, in pieces."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.kernels.broadcasting import broadcast_parameter
from neuroinit.kernels.context import KernelContext, NotSeparableError, PieceParameters
from tests.kernels.passes.derivatives import assert_near, in_pieces, piece_by_piece

INTERVALS = [(0, 1), (1, 4), (4, 6)]
torch.manual_seed(0)
X = torch.randn(6, 3, 4, dtype=torch.float64)


class Uses(nn.Module):
    """A function of inputs and one parameter."""

    def __init__(self, function, *shape):
        super().__init__()
        torch.manual_seed(1)
        self.p = nn.Parameter(torch.randn(shape, dtype=torch.float64))
        self.function = function

    def forward(self, x):
        return torch.tanh(self.function(x, self.p)).square().flatten(1).sum(1)


def in_place(x, p):
    y = torch.sin(x)
    y += p[0]
    y *= p[1]
    return y


def table(x, p):
    """As the relative positions of a Swin transformer."""
    index = torch.tensor([0, 2, 1, 1, 0, 2, 2, 0, 1])
    bias = p[index].view(3, 3, 2).permute(2, 0, 1).contiguous().unsqueeze(0)
    return (x @ x.mT)[:, None] + bias


SEPARABLE = {
    "add": (lambda x, p: x + p, (4,)),
    "added_to": (lambda x, p: p + x, (3, 4)),
    "sub": (lambda x, p: x - p, (3, 4)),
    "subtracted_from": (lambda x, p: p - x, (3, 1)),
    "mul": (lambda x, p: x * p, (1, 3, 4)),
    "multiplied_by": (lambda x, p: p * x, ()),
    "functions": (lambda x, p: torch.add(torch.mul(x, p[0]), p[1]), (2, 4)),
    "in_place": (in_place, (2, 3, 4)),
    "token": (lambda x, p: torch.cat([p.expand(len(x), -1, -1), x], 1), (1, 2, 4)),
    "vector_token": (lambda x, p: x[:, 0] * p.expand(len(x), -1), (1, 4)),
    "token_sizes": (lambda x, p: x * p.expand((len(x), 3, 4)), (1, 3, 1)),
    "views": (lambda x, p: x + p.reshape(4, 3).transpose(0, 1), (12,)),
    "squeezed": (lambda x, p: x * p.squeeze(1).squeeze(0), (1, 1, 4)),
    "table": (table, (3, 2)),
    "twice": (lambda x, p: (x + p) * p, (4,)),
    "with_alpha": (lambda x, p: torch.add(x, p, alpha=2), (4,)),
}
UNDECIDED = {  # may become separable, but must never be wrong
    "product": (lambda x, p: x @ p, (4, 2)),
    "same_for_features": (lambda x, p: x.transpose(0, 1) + p, (3, 1, 1)),
    "one_a_sample": (lambda x, p: x + p, (6, 3, 4)),
    "by_itself": (lambda x, p: x + p * p, (4,)),
    "expanded_to_more": (lambda x, p: x + p.expand(6, 3, 4), (3, 4)),
    "other_function": (lambda x, p: x + p.exp(), (4,)),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_gradients_of_pieces(name):
    function, shape = SEPARABLE[name]
    model = Uses(function, *shape)
    gradients, derivative = in_pieces(model, model, X, INTERVALS)
    expected, expected_derivative = piece_by_piece(model, model, X, INTERVALS)
    assert_near(gradients, expected, 1e-10)
    assert_near([derivative], [expected_derivative], 1e-10)


@pytest.mark.parametrize("name", UNDECIDED)
def test_uses_that_are_right_or_said_not_to_be_separable(name):
    function, shape = UNDECIDED[name]
    model = Uses(function, *shape)
    try:
        gradients, _ = in_pieces(model, model, X, INTERVALS)
    except NotSeparableError:
        return
    assert_near(gradients, piece_by_piece(model, model, X, INTERVALS)[0], 1e-10)


def test_calls_without_a_known_parameter_are_left_to_torch():
    x, p = torch.randn(4, 3), torch.randn(3)
    context = KernelContext(pieces=PieceParameters(((0, 4),), {id(p): p.expand(1, 3)}))
    assert broadcast_parameter(torch.add, (x, x), {}, context) is None
    assert broadcast_parameter(torch.add, (p, p), {}, context) is None
    assert broadcast_parameter(torch.add, (p, 2), {}, context) is None
    assert broadcast_parameter(torch.div, (x, p), {}, context) is None
    assert broadcast_parameter(torch.add, (x, p), {}, KernelContext()) is None
    assert broadcast_parameter(torch.Tensor.__getitem__, (x, p.long()), {}, context) is None
    assert broadcast_parameter(torch.add, (x, p), {}, context) is not None
    assert broadcast_parameter(F.relu, (p,), {}, context) is None
