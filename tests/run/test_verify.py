"""The check before a model is changed: short trainings decide what is applied."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import neuroinit as ni
from neuroinit.common import progress
from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.model.problem import Problem
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


def plain(depth=6):
    """Deep and plain: torch's own start is not dead, and trains slowly."""
    torch.manual_seed(1)
    layers = [m for _ in range(depth) for m in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), *layers, nn.Linear(32, 3))


def test_one_factor_a_layer_where_training_confirms_it():
    model = plain()
    before = values(model)
    assert set(ni.optimize(model, learnable()).scales.values()) == {1.0}  # it works
    result = ni.nio_(model, learnable(), optimizer=sgd)
    assert result.verified.startswith("applied layer by layer")
    assert "short trainings decided" in str(result)
    assert "left alone" not in str(result)
    assert result.after.agreement > result.before.agreement
    assert result.held_out
    for (name, p), old in zip(model.named_parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old * result.scales[name])
        assert p.dim() == 1 or result.scales[name] > 1.2
        assert p.dim() > 1 or result.scales[name] == 1


def slow(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def shrunk(model, factor=0.3):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    return model


def test_a_network_that_learns_nothing_about_its_inputs_is_replaced(monkeypatch):
    """The learning rate is too small for a lower loss within a few steps."""
    found = ni.nio_(shrunk(plain()), learnable(), optimizer=slow).verified
    assert found.startswith("applied layer by layer")
    assert found.endswith("reaches 1.094 and learns nothing about its inputs")
    monkeypatch.setattr("neuroinit.run.optimize_verified.CommonFactor", type(None))
    found = ni.nio_(shrunk(plain()), learnable(), optimizer=slow).verified
    assert found.startswith("applied")  # also if the method makes no diagnosis


class Both(nn.Module):
    """A branch that sees the inputs, and a constant that can learn how frequent classes are."""

    def __init__(self, features, constant):
        super().__init__()
        self.features, self.constant = nn.Parameter(features), nn.Parameter(constant)

    def forward(self, x):
        return x @ self.features + self.constant.sum(0)


def test_a_lower_loss_does_not_count_if_it_ignores_the_inputs():
    """The result learns faster how frequent the classes are, and no longer sees its inputs."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(64, 8, generator=generator) for _ in range(20)]
    rare = [(x, (x[:, 0] > 2.0).long()) for x in inputs]
    model = Both(0.05 * torch.randn(8, 2), torch.full((1, 2), 0.1))
    found = ni.optimize(model, rare, method=ni.NIO(steps=1))
    scales = {"features": 1e-9, "constant": 1.0}
    with torch.no_grad():
        model.constant += torch.tensor([0.0, 3.0])  # of the rare class
        own = dataclasses.replace(found, scales={**scales, "constant": 0.03}, digests={})
    options = (F.cross_entropy, None, slow, SAMPLES_FIRST)
    rollouts = [
        Rollout(Problem(model, F.cross_entropy, None), start, slow)
        for start in (
            {n: p * s[n] for n, p in model.named_parameters()}
            for s in (dict.fromkeys(scales, 1.0), own.scales)
        )
    ]
    for rollout in rollouts:
        rollout.train(iter(rare[4:]), 12)
    before, after = (r.evaluate(rare[:4]) for r in rollouts)
    assert max(after) < min(before)
    result = verified(model, {"whole": own}, rare[:KEPT], *options)
    assert not result.verified.startswith("applied whole")


def test_what_is_learned_is_the_loss_with_other_targets_minus_the_loss():
    model, (batch, *_) = network().double(), learnable(1, 10)
    inputs, targets = batch[0].double(), batch[1]
    rollout = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    with torch.no_grad():
        output = model(inputs)
    others = [F.cross_entropy(output, targets.roll(-shift)) for shift in (2, 4, 6, 8)]
    expected = torch.stack(others).mean() - F.cross_entropy(output, targets)
    assert rollout.learned([(inputs, targets)]) == pytest.approx([expected.item()], rel=1e-12)


def test_a_constant_network_has_learned_nothing():
    model = shrunk(network().double(), 0.0)
    model[-1].bias.data.copy_(torch.tensor([1.0, 0.0, -1.0]))
    rollout = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    batches = [(x.double(), y) for x, y in learnable(3)]
    assert rollout.learned(batches) == pytest.approx([0.0] * 3, abs=1e-15)
    assert len(set(rollout.evaluate(batches))) == 3


def test_what_is_learned_of_a_compute_loss():
    model, batches = network(), learnable(3)
    dicts = [{"x": x, "labels": y} for x, y in batches]

    def compute_loss(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["labels"])

    pairs = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    own = Rollout(problem := Problem(model, None, compute_loss), problem.original, sgd)
    assert own.learned(dicts) == pytest.approx(pairs.learned(batches), rel=1e-5)


@pytest.mark.parametrize("batch", [{"x": torch.ones(4, 8)}, {"x": torch.ones(1, 8)}])
def test_nothing_is_said_of_what_is_learned_without_targets(batch):
    def compute_loss(model, batch):
        return model(batch["x"]).square().mean()

    rollout = Rollout(problem := Problem(network(), None, compute_loss), problem.original, sgd)
    assert rollout.learned([batch]) == []


def test_without_targets_the_losses_decide():
    """An autoencoder: a dead start is replaced, a dead result is not applied."""
    torch.manual_seed(0)
    layers = [m for _ in range(5) for m in (nn.Linear(8, 8), nn.Tanh())]
    batches = [{"x": x} for x, _ in learnable()]

    def compute_loss(model, batch):
        return (model(batch["x"]) - batch["x"]).square().mean()

    model = shrunk(nn.Sequential(*layers), 0.1)
    result = ni.nio_(model, batches, compute_loss=compute_loss, optimizer=sgd)
    assert result.verified.startswith("applied")
    assert "nothing" not in result.verified
    model = nn.Sequential(*layers)
    found = ni.optimize(model, batches, None, ni.NIO(steps=1), compute_loss=compute_loss)
    found = dataclasses.replace(found, scales=dict.fromkeys(found.scales, 1e-6))
    options = (None, compute_loss, sgd, SAMPLES_FIRST)
    result = verified(model, {"whole": found}, batches[:KEPT], *options)
    assert result.verified.startswith("not applied")


def test_a_dead_result_does_not_replace_a_start_that_learns():
    model, batches = network(), learnable()
    found = ni.optimize(model, batches, method=ni.NIO(steps=1))
    found = dataclasses.replace(found, scales=dict.fromkeys(found.scales, 1e-6))  # dead
    options = (F.cross_entropy, None, sgd, SAMPLES_FIRST)
    result = verified(model, {"whole": found}, batches[:KEPT], *options)
    assert result.verified.startswith("not applied")


def phases(monkeypatch):
    """What the progress bar says, as it comes."""
    seen = []
    monkeypatch.setattr(progress.Progress, "show", lambda bar, k, text: seen.append(text))
    return seen


def test_layers_are_scaled_with_small_branches_where_there_are_branches(monkeypatch):
    seen = phases(monkeypatch)
    ni.nio_(network(12), learnable(size=64), optimizer=sgd)
    names = [text.removeprefix("training the result, ") for text in seen if "result" in text]
    assert names == [
        "to residual branches",
        "to residual branches, with squared factors",
        "layer by layer, with small residual branches",
    ]


def test_both_are_the_product_of_layers_and_branches():
    model, batches = shrunk(network(12), 0.1), learnable(size=64)
    layers = ni.optimize(model, batches, method=ni.LSUV(redraw=False)).scales
    branches = ni.optimize(model, batches, method=SmallBranches()).scales
    assert {scale for scale in branches.values() if scale != 1} == {12**-0.5}
    before = dict(zip(layers, values(model), strict=True))
    results = {
        "whole": ni.optimize(model, batches, method=ni.NIO(steps=1)),
        "layer by layer": ni.optimize(model, batches, method=ni.LSUV(redraw=False)),
        "to residual branches": ni.optimize(model, batches, method=SmallBranches()),
    }
    options = (F.cross_entropy, None, sgd, SAMPLES_FIRST)
    result = verified(model, results, batches[:KEPT], *options)
    assert result.verified.startswith("applied layer by layer, with small residual branches")
    assert result.scales == {name: layers[name] * branches[name] for name in layers}
    result.apply_(model)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * result.scales[name])
    with pytest.raises(ValueError, match="applied to this model before"):
        result.apply_(model)


def test_small_branches_where_training_confirms_them():
    model = network(24, gain=1.2)
    before = values(model)
    result = ni.nio_(model, learnable(size=64), optimizer=sgd)
    assert result.verified.startswith("applied to residual branches")
    power = 2 if "squared" in result.verified else 1
    ends = [name for name, scale in result.scales.items() if scale != 1]
    assert ends == [f"{k}.branch.2.weight" for k in range(1, 25)]
    for (name, p), old in zip(model.named_parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old * (24 ** (-power / 2) if name in ends else 1.0))


def test_networks_without_branches_are_not_trained_for_them(monkeypatch):
    seen = phases(monkeypatch)
    ni.nio_(plain(), learnable(), optimizer=sgd)
    assert "training the result, layer by layer" in seen
    assert "training the result, to residual branches" not in seen


@pytest.mark.parametrize(
    ("model", "trainings"), [(lambda: shrunk(plain(), 0.1), 3), (lambda: network(gain=4.0), 5)]
)
def test_at_most_sixty_training_steps(monkeypatch, model, trainings):
    taken = []
    train = Rollout.train
    monkeypatch.setattr(
        Rollout, "train", lambda self, data, steps: (taken.append(steps), train(self, data, steps))
    )
    ni.nio_(model(), learnable(), optimizer=sgd)
    assert taken == [12] * trainings


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


class Checkpointed(nn.Module):
    """Runs a normalized block again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=False))


def test_short_trainings_take_the_steps_of_a_training_loop_with_checkpointed_modules():
    torch.manual_seed(0)
    model, data = Checkpointed().double(), [(x.double(), y) for x, y in learnable(3)]
    rollout = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    rollout.train(iter(data), 3)
    optimizer, losses = sgd(model.parameters()), []
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert rollout.losses == pytest.approx(losses, rel=1e-12)


def test_short_trainings_leave_the_gradients_of_sparse_embeddings_sparse():
    torch.manual_seed(0)
    batch = torch.randint(11, (12, 5)), torch.randint(3, (12,))
    problem = Problem(nn.EmbeddingBag(11, 3, sparse=True), F.cross_entropy, None)
    rollout = Rollout(problem, problem.original, lambda p: torch.optim.SparseAdam(p, lr=0.1))
    rollout.train(iter([batch] * 3), 3)
    assert rollout.losses[2] < rollout.losses[0]
