"""Several pieces in one pass: the same as one by one, and a way back where that cannot be."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients import pieces as rows
from neuroinit.gradients.derivative import derivative
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from tests.utils.architectures import ZOO, case


class Tokens(nn.Module):
    """Patches, a class token, positions, a table that is indexed, and a gain."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 4, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.positions = nn.Parameter(torch.randn(1, 5, 4))
        self.table = nn.Parameter(torch.randn(3, 2))
        self.register_buffer("index", torch.randint(3, (25,)))
        self.gain = nn.Parameter(torch.rand(4) + 0.5)
        self.norm, self.mix = nn.LayerNorm(4), nn.Linear(4, 8)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        q, k = self.mix(self.norm(x)).reshape(len(x), 5, 2, 4).permute(2, 0, 1, 3)
        bias = self.table[self.index].view(5, 5, 2).permute(2, 0, 1).contiguous().unsqueeze(0)
        scores = (q @ k.mT)[:, None] + bias
        x = x + self.gain * (scores.softmax(-1).mean(1) @ F.gelu(x))
        return self.head(x[:, 0])


class Fickle(nn.Module):
    """Uses its weight in another way once ``plain`` is set."""

    plain = True

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.layer(x) if self.plain else x @ self.layer.weight.T + self.layer.bias
        return self.head(torch.tanh(h))


class SequenceFirst(nn.Module):
    """Nine steps of a sequence come before the samples, as many as the trial has samples."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x):
        steps = x.view(len(x), 9, 2).transpose(0, 1).contiguous()
        return self.head(torch.tanh(self.layer(steps)).mean(0))


class Noise(nn.Module):
    """Draws random numbers, which pieces have of their own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))


def images(n):
    torch.manual_seed(1)
    return torch.randn(n, 1, 4, 4, dtype=torch.float64), torch.randint(3, (n,))


def vectors(n, size=4):
    torch.manual_seed(1)
    return torch.randn(n, size, dtype=torch.float64), torch.randint(3, (n,))


def problem_of(model):
    problem = Problem(model.double(), F.cross_entropy)
    problem.seed, count = 0, len(problem.scaled)
    problem.place(torch.linspace(0.6, 1.4, count, dtype=torch.float64))
    return problem


def both(model, batch, engine, D=4, r=0.3):
    """The derivative by one pass, and piece by piece."""
    found = []
    for tells in (None, False):
        problem = problem_of(model)
        problem.tells_pieces = tells
        plan = make_plan(problem, batch, D, r, "cover", "batch")
        ours = derivative(problem, batch, plan, lambda m: m.cosine + m.norm, engine)
        found.append((problem.tells_pieces, ours))
    return found


@pytest.mark.parametrize("engine", ["keep", "stream"])
@pytest.mark.parametrize("r", [0.0, 0.3])
def test_a_transformer_in_one_pass_is_the_same_as_in_pieces(engine, r):
    torch.manual_seed(0)
    (told, ours), (_, wanted) = both(Tokens(), images(16), engine, D=4, r=r)
    assert told
    assert ours.loss == pytest.approx(wanted.loss, rel=1e-12)
    torch.testing.assert_close(ours.moments.norms, wanted.moments.norms, rtol=1e-10, atol=0)
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "batch"),
    [(SequenceFirst, vectors(18, 18)), (Noise, vectors(18))],
    ids=["sequence_first", "noise"],
)
def test_models_that_a_trial_gives_away(model, batch):
    torch.manual_seed(0)
    (told, ours), (_, wanted) = both(model(), batch, "keep")
    assert told is False
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=0, atol=0)


TELLS = {"plain", "relu", "in_place", "tied_linear", "frozen", "zero_dimensional", "deep_residual",
         "layer_norm", "conv_1d", "conv_transpose", "fused_attention", "checkpoint", "group_norm",
         "rms_norm", "instance_norm", "embedding", "tied_embedding", "attention",
         "transformer"}  # fmt: skip


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_which_models_of_the_zoo_it_is_for(found):
    torch.manual_seed(0)
    problem = Problem(found.build(), found.loss_fn, found.compute_loss)
    problem.place(problem.unit_scales)
    told = rows.tells_pieces(problem, problem.prepare(found.batch(8)))
    if found.name in TELLS:
        assert told
    if not found.independent or found.compute_loss is not None:
        assert not told


def test_a_model_that_changes_its_way_later():
    torch.manual_seed(0)
    model, batch = Fickle(), vectors(16)
    problem = problem_of(model)
    plan = make_plan(problem, batch, 4, 0.0, "cover", "batch")
    for engine in ("keep", "stream"):
        problem.tells_pieces, model.plain = None, True
        before = derivative(problem, batch, plan, lambda m: m.cosine, engine)
        assert problem.tells_pieces
        model.plain = False
        after = derivative(problem, batch, plan, lambda m: m.cosine, engine)
        assert problem.tells_pieces is False
        torch.testing.assert_close(before.gradient, after.gradient)


def test_a_scale_of_zero_takes_the_other_way():
    torch.manual_seed(0)
    model, batch = case("plain").build(), case("plain").batch(8)
    found = []
    for tells in (True, False):
        problem = Problem(model, F.cross_entropy)
        scales = problem.unit_scales
        scales[0] = 0.0
        problem.place(scales)
        problem.tells_pieces = tells
        plan = make_plan(problem, batch, 2, 0.0, "cover", "batch")
        found.append(derivative(problem, batch, plan, lambda m: m.norm).gradient)
    torch.testing.assert_close(found[0], found[1])


def test_a_trial_that_does_not_fit_is_no_error():
    class Full(nn.Linear):
        def forward(self, x):
            if len(x) == rows.TRIAL:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    problem = problem_of(Full(4, 3))
    assert rows.tells_pieces(problem, vectors(16)) is False


@pytest.mark.parametrize(
    ("at_once", "most", "wanted"),
    [(8, 9, [[(0, 3), (3, 8)], [(8, 16)]]), (4, 9, [[(0, 3)], [(3, 8)], [(8, 16)]]),
     (16, 2, [[(0, 3), (3, 8)], [(8, 16)]])],
)  # fmt: skip
def test_groups_have_so_many_samples_and_pieces(at_once, most, wanted):
    assert rows._grouped([(0, 3), (3, 8), (8, 16)], at_once, most) == wanted


def test_pieces_with_a_gap_between_them_are_not_one_pass():
    assert rows._grouped([(0, 3), (4, 8)], 16, 9) == [[(0, 3)], [(4, 8)]]
