"""Recurrent layers: one pass over pieces against one-graph autograd, in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients import measures
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from tests.utils import oracles
from tests.utils.engines import ENGINES

LAYERS = {
    "lstm": (nn.LSTM, {}),
    "lstm, two layers, both directions": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "lstm without bias": (nn.LSTM, {"bias": False}),
    "gru, both directions": (nn.GRU, {"bidirectional": True}),
    "gru, steps first": (nn.GRU, {"batch_first": False}),
    "rnn": (nn.RNN, {"num_layers": 2}),
    "rnn with relu": (nn.RNN, {"nonlinearity": "relu"}),
}


class Sequences(nn.Module):
    """All outputs and the last states count; the first states depend on the input."""

    def __init__(self, kind, options):
        super().__init__()
        self.first = options.get("batch_first", True)
        self.body = kind(3, 4, **{"batch_first": True, **options})
        self.states = 2 if kind is nn.LSTM else 1
        self.start = nn.Linear(3, 4)
        self.head = nn.Linear(4 * (1 + self.body.bidirectional), 3)

    def forward(self, x):
        count = self.body.num_layers * (1 + self.body.bidirectional)
        start = torch.tanh(self.start(x[:, 0])).expand(count, -1, -1)
        y, end = self.body(
            x if self.first else x.transpose(0, 1), (start,) * 2 if self.states == 2 else start
        )
        y = y if self.first else y.transpose(0, 1)
        ends = end if self.states == 2 else (end,)
        return self.head(y.mean(1)) + sum(e.square().mean((0, 2))[:, None] for e in ends)


def penalized(model, batch):
    """The loss takes a gradient through the layer itself."""
    x = batch[0].requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return F.cross_entropy(output, batch[1]) + slope.square().mean()


def check(model, engine, compute_loss=None):
    generator = torch.Generator().manual_seed(1)
    batch = torch.randn(6, 5, 3, generator=generator).double(), torch.arange(6) % 3
    loss_fn = None if compute_loss else F.cross_entropy
    problem = Problem(model, loss_fn, compute_loss)
    scales = {n: 0.8 + 0.1 * (i % 4) for i, n in enumerate(problem.scaled)}
    point = problem.at(torch.tensor(list(scales.values()), dtype=torch.float64))
    prepared = problem.prepare(batch)
    plan = make_plan(problem, prepared, 3, 0.0, "cover", "sub-batch")
    ours = ENGINES[engine].derivative(point, prepared, plan, lambda m: m.cosine + m.norm)
    slices = oracles.sub_batch_slices_cover(6, 3, 0.0)

    def objective(gram):
        found = measures.moments(gram)
        return found.cosine + found.norm

    wanted = oracles.scale_gradient(
        model, batch, slices, objective, loss_fn, compute_loss, "sub-batch", scales=scales
    )
    wanted = torch.stack([wanted[n] for n in problem.scaled])
    torch.testing.assert_close(ours.gradient, wanted, rtol=1e-8, atol=1e-11)
    return problem


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYERS)
def test_derivative_in_one_pass(name, engine):
    torch.manual_seed(0)
    assert check(Sequences(*LAYERS[name]).double(), engine).traits.separable


@pytest.mark.parametrize("name", ["lstm", "gru, both directions", "rnn"])
def test_a_loss_that_takes_a_gradient_through_the_layer(name):
    torch.manual_seed(0)
    check(Sequences(*LAYERS[name]).double(), "keep", penalized)


def test_packed_sequences_are_left_to_torch():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            lengths = 1 + torch.arange(len(x)) % 5
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
            return self.head(self.body(packed)[1][0])

    torch.manual_seed(0)
    assert not check(Packed().double(), "keep").traits.separable


def test_calls_with_keywords_are_left_to_torch():
    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            body, start = self.body, x.new_zeros(1, len(x), 4)
            settings = body.all_weights[0], True, 1, 0.0, False, False
            return self.head(torch.gru(x, start, *settings, batch_first=True)[0].mean(1))

    torch.manual_seed(0)
    assert not check(Keywords().double(), "keep").traits.separable
