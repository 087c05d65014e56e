"""Every layer in every pass that the engines take, against plain autograd in float64."""

import pytest
import torch

from neuroinit.kernels.context import NotSeparableError
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from tests.kernels.passes.derivatives import assert_near, in_pieces, ours, piece_by_piece, wanted
from tests.kernels.passes.written_out import WrittenOut
from tests.kernels.passes.zoo import CASES

INTERVALS = [(0, 1), (1, 4), (4, 6)]
TORCH_FAILS = {"transposed_2d"}  # no third derivative with `output_padding`
SEPARABLE = [name for name, case in CASES.items() if case.separable]


@pytest.mark.parametrize("first", [False, True], ids=["inner", "first"])
@pytest.mark.parametrize("name", CASES)
def test_gradient_and_derivative_by_the_scales(name, first):
    model, x = CASES[name].make(first)
    found, expected = ours(model, lambda: model(x).mean()), wanted(model, lambda: model(x).mean())
    assert_near(found.gradients, expected.gradients, 1e-9)
    assert_near([found.derivative], [expected.derivative], 1e-9)


@pytest.mark.parametrize("first", [False, True], ids=["inner", "first"])
@pytest.mark.parametrize("name", SEPARABLE)
def test_several_pieces_in_one_pass(name, first):
    model, x = CASES[name].make(first)
    gradients, derivative = in_pieces(model, model, x, INTERVALS)
    expected, expected_derivative = piece_by_piece(model, model, x, INTERVALS)
    assert_near(gradients, expected, 1e-9)
    assert_near([derivative], [expected_derivative], 1e-9)


@pytest.mark.parametrize("name", ["conv2d_same", "attention_extra_token"])
def test_a_gradient_past_its_leaf_is_noticed(name):
    model, x = CASES[name].make()
    with pytest.raises(NotSeparableError):
        in_pieces(model, model, x, INTERVALS)


def third_order(model, x, mode, grad):
    """``g_1`` is the gradient by all parameters, ``g_k`` that of ``|g_{k-1}|^2``; three of them."""
    parameters = list(model.parameters())
    with mode:
        value = model(x).mean()
    found = []
    for create_graph in (True, True, False):
        gradient = [g for g in grad(value, parameters, create_graph) if g is not None]
        found.append(torch.cat([g.detach().flatten() for g in gradient]))
        value = sum(g.square().sum() for g in gradient)
    return found


@pytest.mark.parametrize(
    "name", [n for n in CASES if "attention" not in n and n not in TORCH_FAILS]
)
def test_third_derivatives_without_scales(name):
    """As MetaInit takes them; torch's own are wrong for normalization layers."""
    model, x = CASES[name].make()
    found = third_order(
        model, x, ReplacedLayers(), lambda value, p, c: differentiate([value], p, create_graph=c)
    )
    expected = third_order(
        model, x, WrittenOut(),
        lambda value, p, c: torch.autograd.grad(value, p, create_graph=c, allow_unused=True),
    )  # fmt: skip
    for own, other in zip(found, expected, strict=True):
        assert_near([own], [other], 1e-9)


def test_gradients_without_a_graph_are_the_same():
    model, x = CASES["pre_norm_mlp"].make()
    with ReplacedLayers():
        value = model(x).mean()
    found = differentiate([value], list(model.parameters()))
    assert_near(list(found), wanted(model, lambda: model(x).mean()).gradients, 1e-9)
