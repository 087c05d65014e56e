"""The check before a model is changed: short trainings decide what is applied."""

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.common import progress
from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.model.problem import Problem
from neuroinit.run.optimize_verified import KEPT, KeptBatches
from neuroinit.run.rollout import Rollout
from neuroinit.run.verify import verified
from tests.run.verify.networks import learnable, network, same, sgd, values


def test_a_start_that_diverges_is_rescued():
    model = network(12, gain=4.0)
    result = ni.nio_(model, learnable(), optimizer=sgd, steps=15)
    assert result.verified.startswith("applied")
    assert "; the model as it was diverges" in result.verified
    assert result.verified in repr(result)


@pytest.mark.filterwarnings("ignore:The gradient norm is")
def test_a_result_that_is_worse_is_not_applied():
    model = network()
    before = values(model)
    result = ni.nio_(model, learnable(), optimizer=sgd, gamma=1e-3, steps=20)
    assert result.verified.startswith("not applied")
    assert set(result.scales.values()) == {1.0}
    assert same(model, before)
    assert result.after is result.before


@pytest.mark.filterwarnings("ignore:The gradient norm is")
def test_without_verification_it_is_applied():
    model = network()
    before = values(model)
    result = ni.nio_(model, learnable(), optimizer=sgd, gamma=1e-3, steps=5, verify=False)
    assert result.verified == ""
    assert not same(model, before)


def test_half_of_a_result_that_goes_too_far():
    """Weights that are a hundred times too small, and scales of ten thousand."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32, bias=False), nn.ReLU(), nn.Linear(32, 3, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.01
    batches = learnable()
    found = ni.optimize(model, batches, method=ni.NIO(steps=1))
    found = dataclasses.replace(found, scales=dict.fromkeys(found.scales, 1e4))
    results = {"whole": found}
    result = verified(model, results, batches[:KEPT], F.cross_entropy, None, sgd, SAMPLES_FIRST)
    assert result.verified.startswith("applied half")
    assert result.scales == pytest.approx(dict.fromkeys(found.scales, 100.0))
    weight = model[0].weight.detach().clone()
    result.apply_(model)
    torch.testing.assert_close(model[0].weight.detach(), 100 * weight)
    with pytest.raises(ValueError, match="was applied to this model before"):
        result.apply_(model)


def test_the_progress_bar_names_the_trainings(monkeypatch):
    seen = []
    monkeypatch.setattr(progress.Progress, "show", lambda bar, k, text: seen.append((k, text)))
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 5
    ni.nio_(model, learnable(), optimizer=sgd)
    trainings = [(done, text) for done, text in seen if text.startswith("training")]
    assert trainings[0] == (0, "training the model as it is")
    assert trainings[1] == (12, "training the result, whole")


def test_the_optimizer_and_the_random_state_are_not_touched():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    state = torch.get_rng_state()
    ni.nio_(model, learnable(), optimizer=optimizer, steps=3, gamma=0.5)
    assert torch.equal(torch.get_rng_state(), state)
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())


def test_a_verified_result_can_be_saved(tmp_path):
    result = ni.nio_(network(), learnable(), optimizer=sgd, steps=3, gamma=0.5)
    result.save(tmp_path / "result.json")
    assert ni.load_result(tmp_path / "result.json").verified == result.verified != ""


@pytest.mark.filterwarnings("ignore:The batches ended")
def test_generators_are_used_once():
    result = ni.nio_(network(), iter(learnable(6)), optimizer=sgd, steps=8, gamma=0.5)
    assert len(result.history) == 6
    assert result.verified


@pytest.mark.parametrize("count", [2, 9])
def test_a_last_batch_of_one_sample_is_left_out(count):
    """As a data loader yields it. BatchNorm cannot train with it."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    batches = [*learnable(count), (torch.randn(1, 8), torch.zeros(1).long())]
    assert ni.nio_(model, batches, optimizer=sgd).verified


def test_data_that_is_not_finite_is_named():
    """Otherwise every training would fail, and nothing would be applied."""
    first, (inputs, targets), *others = learnable(10)
    batches = [first, (inputs.clone().fill_(torch.nan), targets), *others]
    with pytest.raises(ValueError, match="Batch 1 is not finite"):
        ni.nio_(network(), batches, optimizer=sgd)


def test_a_short_run_still_keeps_enough_batches():
    batches = KeptBatches(list(range(40)))
    next(iter(batches))
    assert batches.filled() == list(range(KEPT))
    assert KeptBatches(list(range(3))).filled() == [0, 1, 2]


def test_the_batches_that_are_kept_come_from_one_pass():
    """A second pass over a generator has lost batches, and a loader that shuffles mixes epochs."""
    batches = KeptBatches(iter(range(12)))
    assert [k for k, _ in zip(batches, range(5), strict=False)] == list(range(5))
    assert batches.filled() == list(range(12))
    orders = iter([range(20), range(100, 120)])

    class Shuffled:
        def __iter__(self):
            return iter(next(orders))

    batches = KeptBatches(Shuffled())
    next(iter(batches))
    assert batches.filled() == list(range(KEPT))


def test_kept_batches_are_the_first():
    batches = KeptBatches(range(40))
    assert list(batches) == list(range(40))
    assert batches.kept == list(range(KEPT))
    assert list(batches) == list(range(40))
    assert len(batches.kept) == KEPT


def test_a_single_batch_is_still_refused():
    with pytest.raises(TypeError, match="`batches` should be an iterable of batches"):
        ni.nio_(network(), learnable(1)[0], optimizer=sgd)


def test_a_start_that_diverges_after_the_first_steps_is_rescued():
    """Near the limit of stability; its first steps are those of a good start."""
    model, batches = network(32), learnable()

    def unstable(parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    rollout = Rollout(problem := Problem(model, F.cross_entropy), problem.original, unstable)
    rollout.train(itertools.cycle(batches[4:KEPT]), 12)
    assert max(rollout.losses) < 2 * rollout.losses[0]
    rollout.train(itertools.cycle(batches[4:KEPT]), 12)
    assert not rollout.losses[-1] < 2 * rollout.losses[0]
    result = ni.nio_(model, batches, optimizer=unstable)
    assert result.verified.startswith("applied")
    assert "; the model as it was diverges" in result.verified
