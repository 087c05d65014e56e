"""Which scales are tried besides the result of the method."""

import pytest
import torch
import torch.nn.functional as F

import neuroinit as ni
from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.run.optimize_verified import KEPT
from neuroinit.run.rollout import Rollout
from neuroinit.run.verify import verified
from tests.run.verify.networks import learnable, network, phases, plain, sgd, shrunk, values


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
    sides = [ni.gradient_stats(model, batches[1])]  # no step has used the second batch
    assert result.held_out
    result.apply_(model)
    sides.append(ni.gradient_stats(model, batches[1]))
    for found, expected in zip((result.before, result.after), sides, strict=True):
        assert found.loss == pytest.approx(expected.loss)
        assert found.norms.tolist() == pytest.approx(expected.norms.tolist(), rel=1e-4)
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
