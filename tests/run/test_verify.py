"""The check before a model is changed: short trainings decide what is applied."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.common import progress
from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.run.optimize_verified import KEPT, KeptBatches
from neuroinit.run.rollout import Rollout
from neuroinit.run.verify import verified


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.branch(x)


def network(blocks=2, gain=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), *[Block(32) for _ in range(blocks)], nn.Linear(32, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= gain
    return model


def learnable(count=20, size=32):
    """Batches whose labels depend on the inputs."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(8, 3, generator=generator)
    inputs = [torch.randn(size, 8, generator=generator) for _ in range(count)]
    return [(x, (x @ teacher).argmax(1)) for x in inputs]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def values(model):
    return [p.detach().clone() for p in model.parameters()]


def same(model, before):
    return all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_start_that_diverges_is_rescued():
    model = network(12, gain=4.0)
    result = ni.nio_(model, learnable(), optimizer=sgd, steps=15)
    assert result.verified.startswith("applied")
    assert "where the model as it was diverges" in result.verified
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


def plain(depth=6):
    """Deep and plain: torch's own start is not dead, and trains slowly."""
    torch.manual_seed(1)
    layers = [m for _ in range(depth) for m in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), *layers, nn.Linear(32, 3))


def test_one_factor_a_layer_where_agreement_and_training_confirm_it():
    model = plain()
    before = values(model)
    assert set(ni.optimize(model, learnable()).scales.values()) == {1.0}  # it works
    result = ni.nio_(model, learnable(), optimizer=sgd)
    assert result.verified.startswith("applied layer by layer")
    assert result.after.agreement > result.before.agreement
    assert result.held_out
    for (name, p), old in zip(model.named_parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old * result.scales[name])
        assert p.dim() == 1 or result.scales[name] > 1.2
        assert p.dim() > 1 or result.scales[name] == 1


def test_a_dead_network_is_rescued_although_short_trainings_show_nothing(monkeypatch):
    """The learning rate is too small for a difference within a few steps."""

    def slow(parameters):
        return torch.optim.SGD(parameters, lr=0.01)

    def verdict():
        model = plain()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 0.3
        return ni.nio_(model, learnable(), optimizer=slow).verified

    assert verdict().startswith("applied")
    monkeypatch.setattr("neuroinit.run.optimize_verified.CommonFactor", type(None))
    assert verdict().startswith("not applied")  # as a result that is no diagnosis


def test_a_diagnosis_does_not_excuse_a_worse_result():
    model, batches = network(), learnable()
    found = ni.optimize(model, batches, method=ni.NIO(steps=1))
    found = dataclasses.replace(found, scales=dict.fromkeys(found.scales, 1e-6))  # dead
    options = (F.cross_entropy, None, sgd, SAMPLES_FIRST)
    result = verified(model, {"whole": found}, batches[:KEPT], *options, diagnoses=True)
    assert result.verified.startswith("not applied")


def phases(monkeypatch):
    """What the progress bar says, as it comes."""
    seen = []
    monkeypatch.setattr(progress.Progress, "show", lambda bar, k, text: seen.append(text))
    return seen


def test_layers_are_not_scaled_where_there_are_branches(monkeypatch):
    """Whatever the agreement says: its noise let a transformer be scaled, which then failed."""
    monkeypatch.setattr("neuroinit.run.optimize_verified._agrees_more", lambda result: True)
    seen = phases(monkeypatch)
    ni.nio_(network(12), learnable(size=64), optimizer=sgd)
    assert "training the result, to residual branches" in seen
    assert "training the result, layer by layer" not in seen


@pytest.mark.parametrize("make", ["plain", "network"])
def test_nothing_is_tried_where_the_agreement_falls(monkeypatch, make):
    monkeypatch.setattr("neuroinit.run.optimize_verified._agrees_more", lambda result: False)
    monkeypatch.setattr("neuroinit.run.verify.Rollout", None)  # nothing is trained
    result = ni.nio_({"plain": plain, "network": network}[make](), learnable(), optimizer=sgd)
    assert result.verified == ""
    assert set(result.scales.values()) == {1.0}


def test_small_branches_where_agreement_and_training_confirm_it():
    model = network(24, gain=1.2)
    before = values(model)
    result = ni.nio_(model, learnable(size=64), optimizer=sgd)
    assert result.verified.startswith("applied to residual branches")
    ends = [name for name, scale in result.scales.items() if scale != 1]
    assert ends == [f"{k}.branch.2.weight" for k in range(1, 25)]
    for (name, p), old in zip(model.named_parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old * (24**-0.5 if name in ends else 1.0))


def test_networks_without_branches_are_not_trained_for_them(monkeypatch):
    seen = phases(monkeypatch)
    ni.nio_(plain(), learnable(), optimizer=sgd)
    assert "training the result, layer by layer" in seen
    assert "training the result, to residual branches" not in seen


@pytest.mark.parametrize("make", ["plain", "network"])
def test_at_most_sixty_training_steps(monkeypatch, make):
    taken = []
    train = Rollout.train
    monkeypatch.setattr(
        Rollout, "train", lambda self, data, steps: (taken.append(steps), train(self, data, steps))
    )
    monkeypatch.setattr("neuroinit.run.verify.STANDARD_ERRORS", 1e9)  # nothing is worse
    monkeypatch.setattr("neuroinit.run.optimize_verified._agrees_more", lambda result: True)
    model = {"plain": plain, "network": network}[make]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.1
    ni.nio_(model, learnable(), optimizer=sgd)
    assert taken == [12, 12, 12, 18]


def test_a_short_run_still_keeps_enough_batches():
    batches = KeptBatches(list(range(40)))
    next(iter(batches))
    assert batches.filled() == list(range(KEPT))
    assert KeptBatches(list(range(3))).filled() == [0, 1, 2]


def test_kept_batches_are_the_first():
    batches = KeptBatches(range(40))
    assert list(batches) == list(range(40))
    assert batches.kept == list(range(KEPT))
    assert list(batches) == list(range(40))
    assert len(batches.kept) == KEPT


def test_a_single_batch_is_still_refused():
    with pytest.raises(TypeError, match="`batches` should be an iterable of batches"):
        ni.nio_(network(), learnable(1)[0], optimizer=sgd)
