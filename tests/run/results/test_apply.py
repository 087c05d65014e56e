"""To which models a result can be applied."""

import warnings

import pytest
import torch
from torch import nn

from tests.run.small import batches_of, network
from tests.utils.moving import ni


def test_a_result_is_applied_once():
    model = network()
    result = ni.nio_(model, batches_of(16), steps=3, gamma=0.3)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="was applied to this model before"):
        result.apply_(model)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_result_is_applied_to_a_twin_without_a_word(tmp_path):
    result = ni.optimize(network(), batches_of(16), method=ni.NIO(steps=3))
    result.save(tmp_path / "result.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = ni.load_result(tmp_path / "result.json").apply_(network())
    start = dict(network().named_parameters())
    for name, parameter in twin.named_parameters():
        assert torch.equal(parameter, start[name] * result.scales[name])


def test_a_model_with_another_start_is_noticed():
    result = ni.optimize(network(), batches_of(16), method=ni.NIO(steps=3))
    other = network()
    nn.init.normal_(other[2].weight)
    with pytest.warns(UserWarning, match=r"has other values than .* in `2.weight`"):
        result.apply_(other)


def test_fresh_values_can_be_drawn_again():
    model = network()
    result = ni.kaiming_(model)
    first = model[0].weight.clone()
    result.apply_(model)
    assert torch.equal(model[0].weight, first)
