"""Another default device than the model's, as after ``torch.set_default_device``."""

import copy
from functools import partial

import pytest
import torch

import neuroinit as ni

sgd = partial(torch.optim.SGD, lr=0.1)
INPUTS = torch.linspace(-1, 1, 32).view(8, 4)


@pytest.mark.parametrize(
    "run",
    [
        lambda model, batches: ni.nio_(model, batches).scales,
        lambda model, batches: ni.nio_(model, example=batches[0][0]).scales,
        lambda model, batches: ni.nio_(model, batches, optimizer=sgd).verified,
        lambda model, batches: ni.auto_(model, batches, optimizer=sgd, budget=20).verdict,
        lambda model, batches: ni.score(model, batches[0]),
    ],
    ids=["nio_", "example", "verified", "auto_", "score"],
)
def test_tensors_stay_on_the_device_of_the_model(small_model, digits_like, run):
    other, state = copy.deepcopy(small_model), torch.get_rng_state()
    expected = run(other, digits_like)
    torch.set_rng_state(state)
    with torch.device("meta"):
        assert run(small_model, digits_like) == expected


@pytest.mark.parametrize("draw", [ni.kaiming_, lambda m: ni.lsuv_(m, [INPUTS])])
def test_two_models_are_drawn_differently(small_model, draw):
    other = copy.deepcopy(small_model)
    with torch.device("meta"):
        draw(small_model)
        draw(other)
    assert not torch.equal(small_model[0].weight, other[0].weight)
