"""Batches with too few samples for a step."""

import pytest
import torch
from torch import nn

from tests.run.small import batches_of, network
from tests.utils.moving import ni


def test_small_batches_are_joined():
    with pytest.warns(UserWarning, match="Batches of 3 samples are too small for 8 sub-batches: 3"):
        result = ni.optimize(network(), batches_of(3, 12), method=ni.NIO(steps=2))
    assert result.settings["sub_batches"] == 8
    assert len(result.after.norms) == 8


def test_small_batches_of_different_lengths_give_fewer_sub_batches():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    batches = [{"x": torch.randn(3, length, 1)} for length in (5, 7, 6, 8)]
    with pytest.warns(UserWarning, match="A batch has 3 samples, fewer than `sub_batches = 8`"):
        result = ni.optimize(
            model,
            batches,
            compute_loss=lambda m, b: (m(b["x"]) - 1).square().mean(),
            method=ni.NIO(steps=2),
        )
    assert result.settings["sub_batches"] == 3


def test_a_single_sample_is_refused():
    with pytest.raises(ValueError, match="A batch of 1 samples cannot be cut into `sub_batches"):
        ni.optimize(network(), batches_of(1, 1), method=ni.NIO(steps=1))


@pytest.mark.parametrize("method", [ni.LSUV(), ni.SmallBranches(), ni.MetaInit(steps=1)])
def test_a_batch_of_one_sample_does_not_measure_batch_norm(method, digits_like):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    inputs, targets = digits_like[1]
    batches = [digits_like[0], (inputs[:1], targets[:1])]
    result = ni.optimize(model, batches, method=method)
    assert result.before is not None
    assert not result.held_out
