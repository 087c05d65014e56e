"""Recurrent layers: one pass over pieces against one-graph autograd, in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn

from neuroinit.gradients import measures
from neuroinit.gradients.passes.pieces import one_by_one, one_pass
from neuroinit.gradients.plan import make_plan
from neuroinit.kernels.context import NotSeparableError
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
    assert check(Sequences(*LAYERS[name]).double(), engine).traits.outcomes["separable"]


@pytest.mark.parametrize("name", ["lstm", "gru, both directions", "rnn"])
def test_a_loss_that_takes_a_gradient_through_the_layer(name):
    torch.manual_seed(0)
    check(Sequences(*LAYERS[name]).double(), "keep", penalized)


class Packed(Sequences):
    """Sequences of different lengths; all outputs and the last states count."""

    def __init__(self, kind, options, pack):
        super().__init__(kind, options)
        self.pack = pack

    def forward(self, x):
        lengths = 1 + (1e6 * x[:, 0, 0].abs()).long() % 5
        count = self.body.num_layers * (1 + self.body.bidirectional)
        start = torch.tanh(self.start(x[:, 0])).expand(count, -1, -1)
        packed, start, undo = self.pack(x if self.first else x.transpose(0, 1), lengths, start)
        y, end = self.body(packed, (start,) * 2 if self.states == 2 else start)
        y, _ = rnn.pad_packed_sequence(y, self.first)
        y = undo(y if self.first else y.transpose(0, 1), 0)
        ends = [undo(e, 1) for e in (end if self.states == 2 else (end,))]
        return self.head(y.sum(1)) + sum(e.square().mean((0, 2))[:, None] for e in ends)


def kept(x, dim):
    return x


def pack_unsorted(first):
    def pack(x, lengths, start):
        return rnn.pack_padded_sequence(x, lengths, first, enforce_sorted=False), start, kept

    return pack


def pack_sorted(x, lengths, start):
    """The order of old tutorials: the model sorts, and undoes it afterwards."""
    lengths, order = lengths.sort(descending=True)
    packed = rnn.pack_padded_sequence(x[order], lengths, batch_first=True)
    return packed, start[:, order], lambda x, dim: x.index_select(dim, order.argsort())


def pack_equal(x, lengths, start):
    return rnn.pack_padded_sequence(x, [x.shape[1]] * len(x), batch_first=True), start, kept


def pack_hidden(x, lengths, start):
    """No call tells that the samples are sorted: their lengths are a list."""
    order = sorted(range(len(x)), key=lambda i: -lengths[i])
    packed = rnn.pack_padded_sequence(x[order], lengths[order].tolist(), batch_first=True)
    undo = torch.tensor(order).argsort()
    return packed, start[:, order], lambda x, dim: x.index_select(dim, undo)


def pack_twice(x, lengths, start):
    """Sorted by other values before."""
    order = torch.argsort(x[:, 0, 0])
    packed = rnn.pack_padded_sequence(x[order], lengths[order], True, enforce_sorted=False)
    undo = order.argsort()
    return packed, start[:, order], lambda x, dim: x.index_select(dim, undo)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYERS)
def test_packed_sequences_in_one_pass(name, engine):
    torch.manual_seed(0)
    kind, options = LAYERS[name]
    model = Packed(kind, options, pack_unsorted(options.get("batch_first", True))).double()
    assert check(model, engine).traits.outcomes["separable"]


@pytest.mark.parametrize(
    ("pack", "separable"),
    [(pack_sorted, True), (pack_equal, True), (pack_hidden, False), (pack_twice, False)],
)
def test_packed_sequences_whose_order_is_known_or_not(pack, separable):
    torch.manual_seed(0)
    model = Packed(nn.LSTM, {"bidirectional": True}, pack).double()
    assert check(model, "keep").traits.outcomes["separable"] is separable


def test_a_loss_that_takes_a_gradient_through_packed_sequences():
    torch.manual_seed(0)
    check(Packed(nn.LSTM, {"num_layers": 2}, pack_unsorted(True)).double(), "keep", penalized)


def test_steps_after_the_end_of_a_sequence_do_not_overflow():
    """The state of an explosive layer goes on growing after the end of a short sequence."""

    class Explosive(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.RNN(3, 4, batch_first=True, nonlinearity="relu")
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            lengths = torch.where(x[:, 0, 0] > 0, 2, 5)
            packed = rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
            return self.head(1e-100 * self.body(packed)[1][0])

    torch.manual_seed(0)
    model = Explosive().double()
    model.body.weight_ih_l0.data.fill_(1.0)
    model.body.weight_hh_l0.data.fill_(1e100)
    x = torch.rand(6, 5, 3).double()
    x[1::2] -= 10
    batch = x, torch.arange(6) % 3
    problem = Problem(model, F.cross_entropy)
    prepared = problem.prepare(batch)
    plan = make_plan(problem, prepared, 3, 0.0, "cover", "sub-batch")
    point = problem.at(problem.unit_scales)
    found = ENGINES["keep"].derivative(point, prepared, plan, lambda m: m.cosine)
    assert torch.isfinite(found.gradient).all()


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
    assert not check(Keywords().double(), "keep").traits.outcomes["separable"]


BY_TORCH = ("lstm", "lstm, two layers, both directions", "lstm without bias")


@pytest.mark.parametrize(
    ("name", "samples", "dtype", "calls"),
    [
        *((name, 24, torch.float32, 3) for name in BY_TORCH),
        ("lstm", 21, torch.float32, 0),  # pieces of seven samples
        ("lstm", 24, torch.float64, 0),
        ("gru, steps first", 24, torch.float32, 0),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["samples first", "steps first"])
def test_pieces_of_an_lstm_in_a_first_order_pass_by_torch(
    name, samples, dtype, calls, first, monkeypatch
):
    kind, options = LAYERS[name]
    torch.manual_seed(0)
    model = Sequences(kind, {**options, "batch_first": first}).to(dtype)
    if model.body.bias:
        model.body.bias_hh_l0.requires_grad_(False)
    batch = torch.randn(samples, 5, 3, dtype=dtype), torch.arange(samples) % 3
    problem = Problem(model, F.cross_entropy)
    pieces = [(k * samples // 3, (k + 1) * samples // 3) for k in range(3)]
    seen, own = [], torch.lstm
    with problem.at(problem.unit_scales).session() as session:
        names = problem.trainable
        wanted = list(one_by_one(session, batch, pieces, names))
        monkeypatch.setattr(torch, "lstm", lambda *args: seen.append(len(args)) or own(*args))
        found = one_pass(session, batch, pieces, names, create_graph=False, record=True)
    assert len(seen) == calls
    for k, gradients in enumerate(found.gradients):
        apart = torch.stack([each.gradients[k] for each in wanted])
        torch.testing.assert_close(gradients, apart, rtol=1e-4, atol=1e-6)


def test_a_gradient_inside_the_loss_is_not_left_to_torch():
    torch.manual_seed(0)
    model = Sequences(nn.LSTM, {})
    batch = torch.randn(24, 5, 3), torch.arange(24) % 3

    def compute_loss(model, batch):
        x = batch[0].requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x)
        return F.cross_entropy(model(x), batch[1], reduction="none") + slope.square().sum((1, 2))

    problem = Problem(model, None, compute_loss)
    with (
        problem.at(problem.unit_scales).session() as session,
        pytest.raises(NotSeparableError),
    ):
        one_pass(session, batch, [(0, 8), (8, 24)], problem.trainable, False, record=True)
