"""`compute_loss` in one pass: the same gradients as piece by piece, or piece by piece."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from tests.utils.engines import ENGINES


class Conv1D(nn.Module):
    """The linear layer of GPT-2: its weight has the shape ``(in, out)``."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return y.view(*x.shape[:-1], -1)


class Language(nn.Module):
    """Tokens, positions, a tied head, and a loss over the tokens that are not masked."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(7, 6), nn.Embedding(5, 6)
        self.mix, self.norm, self.value = Conv1D(6, 6), nn.LayerNorm(6), nn.Linear(6, 1)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(5)[None])
        x = x + torch.tanh(self.mix(self.norm(x)).cumsum(1))
        logits = (x[:, :-1] @ torch.eye(6, dtype=x.dtype)).reshape(-1, 6)
        logits = F.linear(logits, self.tokens.weight)
        return logits, labels[:, 1:].reshape(-1), self.value(x).squeeze(-1)


def masked(model, batch):
    logits, labels, _ = model(**batch)
    return F.cross_entropy(logits, labels, ignore_index=-100)


def two_losses(model, batch):
    logits, labels, values = model(**batch)
    other = F.mse_loss(values, batch["ids"].to(values))
    return 0.3 * F.cross_entropy(logits, labels, label_smoothing=0.1) + other / 2


def per_sample(model, batch):
    return model(**batch)[2].square().mean(1)


def scored(model, batch):
    """A loss that is only looked at does not count."""
    logits, labels, values = model(**batch)
    with torch.no_grad():
        F.mse_loss(values, batch["ids"].to(values))
    F.l1_loss(values.detach(), batch["ids"].to(values))
    return F.cross_entropy(logits, labels)


def larger(model, batch):
    logits, labels, values = model(**batch)
    return torch.maximum(F.cross_entropy(logits, labels), F.mse_loss(values, values * 0 + 1))


def exponential(model, batch):
    return masked(model, batch).exp()


def by_hand(model, batch):
    """A mean over tokens that are not masked, which differs in weight from piece to piece."""
    logits, labels, _ = model(**batch)
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses.sum() / (labels != -100).sum()


def with_decay(model, batch):
    return masked(model, batch) + model.mix.weight.square().sum()


def summed(model, batch):
    logits, labels, _ = model(**batch)
    return F.cross_entropy(logits, labels, reduction="sum") / len(labels)


def weighted(model, batch):
    values = model(**batch)[2].flatten()
    weight = torch.arange(len(values)).to(values)
    return F.binary_cross_entropy_with_logits(values, torch.ones_like(values), weight)


def tokens(n):
    """Samples with different numbers of masked tokens."""
    torch.manual_seed(2)
    ids = torch.randint(7, (n, 5))
    labels = ids.clone()
    for row, cut in zip(labels, torch.randint(2, 5, (n,)).tolist(), strict=True):
        row[cut:] = -100
    return {"ids": ids, "labels": labels}


def both(compute_loss, engine="keep", r=0.0):
    found, batch = [], tokens(16)
    for separable in (None, False):
        torch.manual_seed(0)
        problem = Problem(Language().double(), None, compute_loss)
        problem.seed = 0
        if separable is False:
            problem.traits.note("separable", False)
        scales = torch.linspace(0.6, 1.4, len(problem.scaled), dtype=torch.float64)
        plan = make_plan(problem, batch, 4, r, "cover", "sub-batch")
        engine_ = ENGINES[engine]
        ours = engine_.derivative(problem.at(scales), batch, plan, lambda m: m.cosine + m.norm)
        found.append((problem.traits.outcomes["separable"], ours))
    return found


@pytest.mark.parametrize("engine", ["keep", "stream"])
@pytest.mark.parametrize("r", [0.0, 0.3])
@pytest.mark.parametrize("compute_loss", [masked, two_losses, per_sample, scored])
def test_one_pass_is_the_same_as_piece_by_piece(compute_loss, engine, r):
    (separable, ours), (_, wanted) = both(compute_loss, engine, r)
    assert separable
    assert ours.loss == pytest.approx(wanted.loss, rel=1e-12)
    torch.testing.assert_close(ours.moments.norms, wanted.moments.norms, rtol=1e-10, atol=0)
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "compute_loss", [larger, exponential, by_hand, with_decay, summed, weighted]
)
def test_other_losses_are_computed_piece_by_piece(compute_loss):
    (separable, ours), (_, wanted) = both(compute_loss)
    assert separable is False
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=0, atol=0)


def test_a_loss_that_changes_after_the_trial_is_noticed():
    """The larger of two losses: which one it is differs from batch to batch."""
    losses = {"loss": masked}
    torch.manual_seed(0)
    batch, problem = tokens(8), Problem(Language().double(), None, lambda *a: losses["loss"](*a))
    point = problem.at(problem.unit_scales)
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch")
    for later in (larger, exponential, by_hand, with_decay):
        problem.traits.outcomes.clear()
        losses["loss"] = masked
        ENGINES["keep"].derivative(point, batch, plan, lambda m: m.norm)
        assert problem.traits.outcomes["separable"]
        losses["loss"] = later
        ours = ENGINES["keep"].derivative(point, batch, plan, lambda m: m.norm)
        assert problem.traits.outcomes["separable"] is False
        wanted = ENGINES["keep"].derivative(point, batch, plan, lambda m: m.norm)
        torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=0, atol=0)
