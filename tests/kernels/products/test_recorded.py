"""Small linear layers in first-order passes: the gradients are those of every piece alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuroinit.gradients.passes.pieces import backward_pass, forward_pass, one_by_one, one_pass
from neuroinit.kernels.context import NotSeparableError
from neuroinit.kernels.products import recorded
from neuroinit.model.problem import Problem

PIECES = [(0, 4), (4, 8), (8, 12)]


class Around(nn.Module):
    """A layer between two others, which is called by a function."""

    def __init__(self, call, layer=None):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.layer, self.call = layer or nn.Linear(5, 5), call

    def forward(self, x):
        return self.last(self.call(self.layer, torch.tanh(self.first(x))))


def sequences(layer, x):
    """Rows of several steps; the output, which would be a view, is changed in place."""
    y = layer(x[:, None].expand(-1, 3, -1).contiguous())
    return y.relu_().sum(1)


def frozen_bias():
    layer = nn.Linear(5, 5)
    layer.bias.requires_grad_(False)
    return layer


CASES = {
    "plain": (lambda f, x: f(x), None),
    "without bias": (lambda f, x: f(x), nn.Linear(5, 5, bias=False)),
    "used twice": (lambda f, x: f(f(x).relu_()), None),
    "changed in place": (lambda f, x: f(x).mul_(2).relu_(), None),
    "sequences": (sequences, None),
    "not used": (lambda f, x: f(x) * 0 + x, None),
    "dropped": (lambda f, x: (f(x), x)[1], None),
    "checkpointed": (lambda f, x: checkpoint(f, x, use_reentrant=False), None),
    "frozen bias": (lambda f, x: f(x), frozen_bias()),
    "without a graph": (lambda f, x: x + f(x.detach()), None),
    "no gradient": (lambda f, x: x + torch.no_grad()(f)(x), None),
}


def session_and_batch(model, compute_loss=None):
    torch.manual_seed(0)
    problem = Problem(model.double(), F.cross_entropy, compute_loss)
    batch = torch.randn(12, 4).double(), torch.randint(3, (12,))
    return problem.at(problem.unit_scales).session(), problem.prepare(batch), problem.trainable


@pytest.mark.parametrize("pieces", [PIECES, [(0, 3), (3, 12)]], ids=["equal", "different"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_every_piece_alone(name, pieces):
    context, batch, names = session_and_batch(Around(*CASES[name]))
    with context as session:
        found = one_pass(session, batch, pieces, names, create_graph=False, record=True)
        wanted = list(one_by_one(session, batch, pieces, names))
    for k, gradients in enumerate(found.gradients):
        apart = torch.stack([each.gradients[k] for each in wanted])
        torch.testing.assert_close(gradients, apart, rtol=1e-12, atol=1e-14)


def test_two_losses_of_one_forward_pass():
    context, batch, names = session_and_batch(Around(*CASES["plain"]))
    with context as session:
        losses, leaves = forward_pass(session, batch, PIECES, names, record=True)
        first = backward_pass(session, losses, leaves, names, retain_graph=True)
        doubled = backward_pass(session, [2 * loss for loss in losses], leaves, names)
    for a, b in zip(first.gradients, doubled.gradients, strict=True):
        torch.testing.assert_close(2 * a, b, rtol=0, atol=0)


@pytest.mark.parametrize(("small", "count"), [(2**14, 2), (0, 0)])
def test_small_layers_whose_input_has_a_graph_are_recorded(small, count, monkeypatch):
    monkeypatch.setattr(recorded, "SMALL", small)
    context, batch, names = session_and_batch(Around(*CASES["plain"]))
    with context as session:
        _, leaves = forward_pass(session, batch, PIECES, names, record=True)
        assert len(leaves.recorded.layers) == count
        _, leaves = forward_pass(session, batch, PIECES, names)
        assert leaves.recorded is None


def test_a_loss_that_takes_gradients_itself_is_not_recorded():
    def compute_loss(model, batch):
        output = model(batch[0].requires_grad_())
        (slope,) = torch.autograd.grad(output.sum(), batch[0], create_graph=True)
        return F.cross_entropy(output, batch[1], reduction="none") + slope.square().sum(1)

    context, batch, names = session_and_batch(Around(*CASES["plain"]), compute_loss)
    with context as session, pytest.raises(NotSeparableError):
        one_pass(session, batch, PIECES, names, create_graph=False, record=True)
