"""Tables of words and positions, in pieces and as a whole."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.kernels.context import KernelContext, NotSeparableError
from neuroinit.kernels.embedding import embedding
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from tests.kernels.passes.derivatives import assert_near, in_pieces, piece_by_piece

INTERVALS = [(0, 1), (1, 4), (4, 6)]
INDEX = torch.tensor([[0, 3, 2], [1, 1, 4], [2, 0, 3], [4, 3, 0], [1, 2, 2], [3, 4, 1]])


class Words(nn.Module):
    def __init__(self, positions, **settings):
        super().__init__()
        self.words, self.places = nn.Embedding(5, 4, **settings), nn.Embedding(3, 4)
        self.register_buffer("positions", positions)
        self.head = nn.Linear(4, 2)

    def forward(self, index):
        x = torch.sin(self.words(index) + self.places(self.positions))
        return self.head(x).square().flatten(1).sum(1)


@pytest.mark.parametrize("positions", [torch.arange(3), torch.arange(3)[None]], ids=["1d", "2d"])
@pytest.mark.parametrize("padding", [None, 0, -2])
def test_pieces(positions, padding):
    torch.manual_seed(0)
    model = Words(positions, padding_idx=padding).double()
    nn.init.normal_(model.words.weight)
    gradients, derivative = in_pieces(model, model, INDEX, INTERVALS)
    expected, expected_derivative = piece_by_piece(model, model, INDEX, INTERVALS)
    assert_near(gradients, expected, 1e-10)
    assert_near([derivative], [expected_derivative], 1e-10)


def test_the_only_sample_is_a_sample():
    """An index of shape (1, ...) with a batch of one sample is not the same for all."""
    torch.manual_seed(0)
    model = Words(torch.arange(3)).double()
    gradients, _ = in_pieces(model, model, INDEX[:1], [(0, 1)])
    assert_near(gradients, piece_by_piece(model, model, INDEX[:1], [(0, 1)])[0], 1e-10)


@pytest.mark.parametrize("settings", [{"max_norm": 0.5}, {"scale_grad_by_freq": True}])
def test_tables_that_are_changed_or_counted_are_not_separable(settings):
    model = Words(torch.arange(3), **settings).double()
    with pytest.raises(NotSeparableError):
        in_pieces(model, model, INDEX, INTERVALS)


def test_settings_are_torchs():
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    for settings in ({"padding_idx": 1}, {"scale_grad_by_freq": True}, {"sparse": True}):
        found = embedding(INDEX, weight, **settings, context=KernelContext())
        expected = F.embedding(INDEX, weight, **settings)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(y.pow(3).sum(), weight)[0] for y in (found, expected)]
        torch.testing.assert_close(gradients[0], gradients[1].to_dense())
    ours, torchs = weight.detach().clone(), weight.detach().clone()
    found = embedding(INDEX, ours, max_norm=0.5, norm_type=1.0, context=KernelContext())
    torch.testing.assert_close(found, F.embedding(INDEX, torchs, max_norm=0.5, norm_type=1.0))
    torch.testing.assert_close(ours, torchs)


def test_sparse_tables_have_right_third_derivatives():
    torch.manual_seed(0)
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for sparse in (False, True):
        layer = nn.Embedding(5, 4, sparse=sparse, _weight=weight)
        layer.weight = nn.Parameter(weight.detach().clone())
        with ReplacedLayers():
            value = torch.sin(layer(INDEX)).pow(2).sum()
        for create_graph in (True, True, False):
            (g,) = differentiate([value], [layer.weight], create_graph=create_graph)
            value = g.pow(2).sum()
        found.append(g)
    torch.testing.assert_close(*found)
