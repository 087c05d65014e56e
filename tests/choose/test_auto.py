"""The automatic choice."""

import math

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.choose import decision
from neuroinit.choose.auto import default_candidates
from neuroinit.choose.auto_result import START
from neuroinit.model.problem import Problem
from neuroinit.run import rollout
from neuroinit.run.rollout import Outcome, Rollout
from tests.choose.learnable import FEW, learnable, network, sgd
from tests.utils.architectures import ZOO
from tests.utils.snapshots import assert_unchanged, snapshot


def test_a_start_that_diverges_is_replaced():
    model = network(gain=1e14)
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=60, candidates=FEW)
    assert result.winner in FEW
    assert "diverges" in result.verdict
    start, *others = result.candidates
    assert start.name == START
    assert start.scores[-1] == math.inf
    assert min(c.scores[-1] for c in others if c.scores) < 2.0
    assert model[0].weight.abs().max() < 5


def test_a_good_start_is_left_alone():
    model = network()
    before = snapshot(model)
    worse = {"tiny": ni.TruncNormal(std=1e-4)}
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=60, candidates=worse)
    assert result.winner == START
    assert "left alone" in result.verdict
    assert result.results == []
    assert_unchanged(before, model)


def test_a_lead_within_the_noise_is_no_reason():
    start = Outcome([1.0, 1.2, 0.8, 1.1], [])
    winner, verdict = decision.decided(
        {START: start, "other": Outcome([0.9, 1.3, 0.7, 1.0], [])}, 1.0
    )
    assert winner == START
    assert "within the noise" in verdict
    winner, _ = decision.decided({START: start, "other": Outcome([0.9, 1.1, 0.7, 1.0], [])}, 1.0)
    assert winner == "other"


def test_a_model_is_unchanged_if_the_lead_is_within_the_noise(monkeypatch):
    monkeypatch.setattr(decision, "STANDARD_ERRORS", 1e9)
    model = network(gain=0.3)
    before = snapshot(model)
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=60, candidates=FEW)
    assert result.winner == START
    assert_unchanged(before, model)


def test_an_outlier_is_not_all_the_noise():
    gain, noise = rollout.lead([1.0, 1.1, 10.0, 1.2], [0.5, 0.55, 0.7, 0.6])
    assert gain > 2 * noise
    gain, noise = rollout.lead([-1.0, -1.2], [-2.0, -2.1])
    assert gain == pytest.approx(0.95)
    assert rollout.lead([2.0], [1.0])[1] == math.inf


def test_a_start_that_learns_nothing_is_replaced_by_what_has_learned_most():
    blind = Outcome([0.9, 0.9], [0.0, 0.0])
    last = {
        START: blind,
        "low": Outcome([0.8, 0.8], [0.01, 0.01]),
        "learned": Outcome([1.0, 1.0], [0.1, 0.1]),
        "blind": Outcome([0.1, 0.1], [0.0, 0.0]),
        "diverged": Outcome([3.0, 3.0], [2.0, 2.0]),
    }
    winner, verdict = decision.decided(last, 1.0)
    assert winner == "learned"
    assert "learns nothing about its inputs" in verdict
    winner, _ = decision.decided({**last, START: Outcome([1.0, 1.01], [0.01, 0.01])}, 1.0)
    assert winner == "low"  # the lowest loss minus what was learned
    winner, verdict = decision.decided({START: blind, "blind": last["blind"]}, 1.0)
    assert winner == START
    assert "no candidate trains" in verdict


@pytest.mark.parametrize("first", [math.nan, math.inf])
def test_a_first_loss_that_is_not_finite(first):
    last = {START: Outcome([math.inf], [math.inf]), "other": Outcome([1.0], [0.1])}
    winner, verdict = decision.decided(last, first)
    assert winner == "other"
    assert "diverges" in verdict


def test_other_samples_judge():
    def seen(batches):
        return {float(x) for inputs, _ in batches for x in inputs[:, 0]}

    for count, size in ((1, 64), (1, 8), (3, 16), (12, 8)):
        judges, training = rollout.split_batches(learnable(count, size), 1)
        assert len(judges) >= 2
        assert not seen(judges) & seen(training)
        assert len(seen(judges) | seen(training)) == count * size
    judges, _ = rollout.split_batches(learnable(1, 8), 2)  # BatchNorm needs two samples
    assert [len(y) for _, y in judges] == [2]
    with pytest.raises(ValueError, match=r"at least 2 samples\. Found a batch of 3"):
        rollout.split_batches(learnable(1, 3), 2)


def test_one_batch_judges_in_parts():
    result = ni.auto_(
        network(gain=1e4), learnable(1, 512), optimizer=sgd, budget=60, candidates=FEW
    )
    assert result.winner in FEW


def test_nothing_trains():
    model = network()

    def hopeless(parameters):
        return torch.optim.SGD(parameters, lr=1e30)

    result = ni.auto_(model, learnable(), optimizer=hopeless, budget=60, candidates=FEW)
    assert result.winner == START
    assert "no candidate trains" in result.verdict


def test_budget_and_rounds():
    model = network(gain=0.3)
    named = {f"normal {k}": ni.TruncNormal(std=0.1 * k) for k in range(1, 8)}
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=97, candidates=named)
    assert result.steps <= 97
    assert sum(c.steps for c in result.candidates) == result.steps
    assert result.steps >= 97 - len(named)
    assert max(len(c.scores) for c in result.candidates) == 3
    counts = sorted(len(c.scores) for c in result.candidates)
    assert counts[0] == 1
    assert len(result.candidates[0].scores) == 3  # the start is in every round
    assert all(c.name in repr(result) for c in result.candidates)


def test_the_result_can_be_applied_to_a_twin():
    model, twin = network(gain=0.01), network(gain=0.01)  # dead
    chain = {"LSUV, then NIO": (ni.LSUV(), ni.NIO(steps=2, sub_batches=4))}
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=40, candidates=chain)
    assert len(result.results) == 2
    result.apply_(twin)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_rollout_is_plain_training():
    batches = learnable(5)
    model, plain = network(), network()
    problem = Problem(model, nn.functional.cross_entropy)
    rollout = Rollout(problem, problem.original, sgd(model.parameters()))
    rollout.train(iter(batches), 5)
    optimizer = sgd(plain.parameters())
    losses = []
    for inputs, targets in batches:
        loss = nn.functional.cross_entropy(plain(inputs), targets)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert rollout.losses == losses
    for name, parameter in plain.named_parameters():
        assert torch.equal(rollout.values[name], parameter)


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
@pytest.mark.filterwarnings("ignore:All-zero tensors")
def test_over_the_zoo(found):
    torch.manual_seed(0)
    model = found.build()
    before = snapshot(model)
    batches = [found.batch(8) for _ in range(3)]
    result = ni.auto_(
        model,
        batches,
        found.loss_fn,
        compute_loss=found.compute_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
        budget=8,
        candidates={"Xavier": ni.Xavier()},
    )
    changed = result.winner != START
    assert_unchanged(before, model, except_for=("parameters",) if changed else ())


def test_default_candidates_compete():
    model = network(gain=30.0)
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=40)
    assert [c.name for c in result.candidates] == [START, *default_candidates(model, sgd)]
    by_name = {c.name: c for c in result.candidates}
    assert by_name["small branches"].failed == f"the same as {START}"  # there are no branches
    assert by_name["LSUV"].scores


def test_normal_values_are_for_embeddings():
    assert "normal 0.02, small branches" not in default_candidates(network(), sgd)
    embedding = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 3))
    assert "normal 0.02, small branches" in default_candidates(embedding, sgd)


def test_without_another_start_nothing_is_compared():
    model = network()
    same = {"small branches": ni.SmallBranches()}
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=40, candidates=same)
    assert result.winner == START
    assert "no candidate differs" in result.verdict
    assert result.steps <= 3
    assert result.cost > 0


def test_the_figure_has_a_line_for_each(tmp_path):
    model = network(gain=30.0)
    result = ni.auto_(model, learnable(), optimizer=sgd, budget=40, candidates=FEW)
    drawn = ni.plots.rollouts(result)
    (ax,) = drawn.axes
    labels = {line.get_label() for line in ax.lines}
    assert {START, *FEW} <= labels
    drawn.savefig(tmp_path / "rollouts.png")


def test_default_candidates_that_do_not_fit_stay_out():
    """LSUV cannot follow a model that calls no layer; the others compete."""

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 3))

        def forward(self, x):
            return x @ self.weight

    result = ni.auto_(Product(), learnable(), optimizer=sgd, budget=40)
    assert {c.name: c.failed for c in result.candidates}["LSUV"] != ""
