"""Slices, leaves and which backward pass is under way."""

import pytest
import torch
from torch.autograd import forward_ad

from neuroinit.kernels.context import (
    KernelContext,
    NotSeparableError,
    PieceParameters,
    RowSlices,
    leaf_gradients,
    per_slice,
    slice_directions,
    transforms_active,
)

PIECES = PieceParameters(((0, 1), (1, 4)), {})


def test_slices_have_all_rows_of_a_piece():
    assert PIECES.slices(torch.zeros(4, 2)) == [slice(0, 1), slice(1, 4)]
    assert PIECES.slices(torch.zeros(12, 1)) == [slice(0, 3), slice(3, 12)]


@pytest.mark.parametrize("shape", [(5, 2), (2, 4), (4,), (0, 4), ()])
def test_activations_without_samples_first_are_not_separable(shape):
    with pytest.raises(NotSeparableError):
        PIECES.slices(torch.zeros(shape))


def test_leaves_of_parameters():
    weight, frozen = torch.zeros(3, requires_grad=True), torch.zeros(3)
    leaf, view_leaf = torch.zeros(2, 3), torch.zeros(2, 1, 3)
    view = weight[None]
    pieces = PieceParameters(((0, 2), (2, 4)), {id(weight): leaf, id(frozen): leaf})
    assert pieces.leaf(weight) is leaf
    assert pieces.leaf(frozen) is None
    assert pieces.leaf(None) is None
    assert pieces.leaf(torch.zeros(3, requires_grad=True)) is None
    with pytest.raises(NotSeparableError):
        pieces.leaf(view)
    assert pieces.known_leaf(view) is None
    pieces.derived[id(view)] = view, view_leaf
    assert pieces.known_leaf(view) is view_leaf
    assert pieces.known_leaf(weight) is leaf


def test_a_context_without_scales_and_pieces_is_false():
    assert not KernelContext()
    assert KernelContext({0: torch.ones(())})
    assert KernelContext(pieces=PIECES)


def test_first_backward_is_ours_alone():
    context = KernelContext({0: torch.ones(())})
    assert not context.first_backward
    with context.differentiating():
        assert context.first_backward
        context.second_backward = True
        assert not context.first_backward
        context.second_backward = False
        with context.differentiating():
            pass
        assert context.first_backward
    assert not context.first_backward
    with KernelContext().differentiating():
        assert not KernelContext().first_backward


def test_an_error_ends_the_backward_pass():
    context = KernelContext({0: torch.ones(())})
    with pytest.raises(KeyError, match="on purpose"), context.differentiating():
        raise KeyError("on purpose")
    assert not context.first_backward


def test_transforms():
    seen = []

    def look(x):
        seen.append(transforms_active())
        return x.sum()

    x = torch.ones(2)
    look(x)
    torch.func.grad(look)(x)
    torch.vmap(look)(torch.ones(2, 2))
    torch.func.vjp(look, x)
    with forward_ad.dual_level():
        look(x)
    look(x)
    assert seen == [False, True, True, True, True, False]


def test_functions_of_slices():
    x = torch.arange(6.0).view(3, 2)
    slices = RowSlices([slice(0, 1), slice(1, 3)])
    assert torch.equal(per_slice(torch.add, None, x, x), 2 * x)
    found = per_slice(lambda a, b: (a - 3 * b).sum(0), slices, x, x)
    assert torch.equal(found, torch.tensor([[0.0, -2.0], [-12.0, -16.0]]))


def test_directions_of_slices():
    v = torch.arange(4.0).view(2, 2)
    assert slice_directions(None, v) == [(slice(None), v)]
    slices = RowSlices([slice(0, 1), slice(1, 3)])
    (one, first), (two, second) = slice_directions(slices, v)
    assert [one, two] == slices
    assert torch.equal(torch.stack([first, second]), v)


def test_gradients_by_leaves_come_last():
    gw, gb = torch.zeros(1), torch.ones(1)
    assert leaf_gradients(True, gw, gb) == (None, None, gw, gb)
    assert leaf_gradients(False, gw, gb) == (gw, gb, None, None)
