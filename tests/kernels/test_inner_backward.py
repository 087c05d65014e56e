"""Losses that themselves take a gradient: penalties, Laplacians, MAML, ``torch.func``."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from neuroinit.kernels.context import NotSeparableError
from neuroinit.kernels.function_mode import ReplacedLayers
from tests.kernels.passes.derivatives import assert_near, in_pieces, ours, piece_by_piece, wanted
from tests.kernels.passes.zoo import CASES


def penalty(model, x):
    x = x.clone().requires_grad_()
    y = model(x)
    (gx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y + gx.square().flatten(1).sum(1)


def laplacian(model, x):
    x = x.clone().requires_grad_()
    y = model(x)
    (gx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (ggx,) = torch.autograd.grad(gx.square().sum(), x, create_graph=True)
    return y + ggx.square().flatten(1).sum(1)


def backward_into_grad(model, x):
    x = x.clone().requires_grad_()
    torch.autograd.backward(model(x).sum(), create_graph=True, inputs=[x])
    return x.grad.square().flatten(1).sum(1)


def adversarial(model, x):
    """A gradient without a graph, as a step of the input."""
    x = x.clone().requires_grad_()
    (gx,) = torch.autograd.grad(model(x).sum(), x)
    return model(x + 0.1 * gx.tanh())


def inner_step(model, x):
    """MAML: the loss after a step of the parameters."""
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(model(x).mean(), list(parameters.values()), create_graph=True)
    moved = {n: p - 0.1 * g for (n, p), g in zip(parameters.items(), found, strict=True)}
    return functional_call(model, moved, x)


def functional_step(model, x):
    parameters = dict(model.named_parameters())
    found = grad(lambda p: functional_call(model, p, x).mean())(parameters)
    return functional_call(model, {n: p - 0.1 * found[n] for n, p in parameters.items()}, x)


def functional_penalty(model, x):
    return grad(lambda x: model(x).sum())(x).square().flatten(1).sum(1) + model(x)


def directional(model, x):
    return jvp(model, (x,), (torch.cos(x),))[1].square() + model(x)


def dual(model, x):
    with forward_ad.dual_level():
        y = model(forward_ad.make_dual(x, torch.cos(x)))
        return forward_ad.unpack_dual(y).tangent.square()


def sample_by_sample(model, x):
    return vmap(grad(lambda s: model(s[None]).sum()))(x).square().flatten(1).sum(1)


def jacobian(model, x):
    return jacrev(lambda x: model(x).sum()[None])(x)[0].square().flatten(1).sum(1)


def vectorized_jacobian(model, x):
    found = torch.autograd.functional.jacobian(model, x, create_graph=True, vectorize=True)
    return found.square().flatten(1).sum(1)


KINDS = [penalty, laplacian, backward_into_grad, adversarial, inner_step, functional_step,
         functional_penalty, directional, dual, sample_by_sample, jacobian,
         vectorized_jacobian]  # fmt: skip
LAYERS = ["linear", "linear_tokens", "conv2d_stride", "transposed_groups", "batch_norm_no_track",
          "batch_norm_no_gain", "layer_norm", "layer_norm_image", "layer_norm_no_gain",
          "instance_norm_affine", "group_norm", "rms_norm", "attention", "conv_batch_norm",
          "pre_norm_mlp"]  # fmt: skip
pytestmark = [
    pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


def possible(name, kind):
    """Whether plain torch can do it; a single sample has no batch statistics."""
    failing = (("group_norm", vectorized_jacobian), ("attention", dual))
    return (name, kind) not in failing and not ("batch_norm" in name and kind is sample_by_sample)


ALL = [(name, kind) for name in LAYERS for kind in KINDS if possible(name, kind)]
# found by running every case: the layers that are separable inside a gradient by the input
SEPARABLE_INSIDE = ["layer_norm_no_gain", "instance_norm_affine", "group_norm", "rms_norm"]
SEPARABLE = {
    adversarial: [name for name in LAYERS if CASES[name].separable],
    penalty: SEPARABLE_INSIDE,
    laplacian: SEPARABLE_INSIDE,
    backward_into_grad: SEPARABLE_INSIDE,
    vectorized_jacobian: SEPARABLE_INSIDE,
}
SAMPLE_WISE = [(n, k) for n, k in ALL if k not in (inner_step, functional_step)]


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_both_backward_passes_are_those_of_plain_autograd(name, kind):
    model, x = CASES[name].make()
    expected = wanted(model, lambda: kind(model, x).mean())
    for scaled in (True, False):
        found = ours(model, lambda: kind(model, x).mean(), scaled)
        assert_near(found.gradients, expected.gradients, 1e-8)
        assert_near([found.derivative], [expected.derivative], 1e-8)


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, k in SAMPLE_WISE if CASES[n].separable])
def test_pieces_are_apart_or_said_not_to_be(name, kind):
    """Never wrong without a word: the caller falls back to one pass per piece."""
    model, x = CASES[name].make()
    intervals = [(0, 2), (2, 6)]
    try:
        gradients, derivative = in_pieces(model, lambda x: kind(model, x), x, intervals)
    except NotSeparableError:
        assert name not in SEPARABLE.get(kind, [])
        return
    expected, expected_derivative = piece_by_piece(model, lambda x: kind(model, x), x, intervals)
    assert_near(gradients, expected, 1e-8)
    assert_near([derivative], [expected_derivative], 1e-8)


class Checkpointed(nn.Module):
    """A model that is run again in every backward pass."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return checkpoint(self.model, x, use_reentrant=False)


def gradients_by_backward(model, x):
    """``.backward`` of a vector, with a vector, into the inputs."""
    x = x.clone().requires_grad_()
    y = model(x)
    y.backward(torch.cos(y.detach()), create_graph=True, inputs=[x])
    return x.grad.square().flatten(1).sum(1)


def unused_inputs(model, x):
    x, z = x.clone().requires_grad_(), torch.ones(2, dtype=x.dtype, requires_grad=True)
    gx, gz = torch.autograd.grad(model(x).sum(), [x, z], create_graph=True, materialize_grads=True)
    return gx.square().flatten(1).sum(1) + gz.sum()


# not `inner_step`: torch runs a checkpointed part again after `functional_call` has ended
RUN_AGAIN = [penalty, laplacian, backward_into_grad, adversarial, gradients_by_backward,
             unused_inputs]  # fmt: skip


@pytest.mark.parametrize("kind", RUN_AGAIN)
@pytest.mark.parametrize("name", ["linear", "layer_norm", "conv_batch_norm", "pre_norm_mlp"])
def test_checkpointed_models_run_again_with_the_same_layers(name, kind):
    model, x = CASES[name].make()
    expected = wanted(model, lambda: kind(model, x).mean())
    again = Checkpointed(model)
    found = ours(again, lambda: kind(again, x).mean(), True)
    assert_near(found.gradients, expected.gradients, 1e-8)
    assert_near([found.derivative], [expected.derivative], 1e-8)


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda y, x: torch.autograd.grad(y, x), "only for scalar outputs"),
    (lambda y, x: torch.autograd.grad(y.sum(), x, torch.ones(3)), "Mismatch in shape"),
    (lambda y, x: torch.autograd.grad(y.sum(), [x.clone()]), "not have been used in the graph"),
    (lambda y, x: torch.autograd.grad(y.sum().detach(), x), "does not require grad"),
    (lambda y, x: y.backward(), "only for scalar outputs"),
])  # fmt: skip
def test_wrong_calls_have_the_errors_of_torch(wrong, message):
    x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match=message) as expected:
        wrong(2 * x, x)
    with ReplacedLayers(), pytest.raises(RuntimeError, match=message) as found:
        wrong(2 * x, x)
    assert str(found.value) == str(expected.value)
