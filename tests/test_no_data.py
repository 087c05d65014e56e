"""No data at hand: an example of the inputs stands for it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.random_data import in_place_of_data, random_batches
from tests.utils.snapshots import assert_unchanged, snapshot

EXAMPLE = 3 + 2 * torch.randn(64, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
    )


def test_inputs_are_like_the_example_and_labels_are_of_all_classes():
    inputs, labels = next(iter(in_place_of_data(EXAMPLE, network(), 0)))
    assert inputs.shape == EXAMPLE.shape
    assert abs(inputs.mean() - 3) < 0.3
    assert abs(inputs.std() - 2) < 0.3
    assert set(labels.tolist()) == set(range(5))


def test_a_single_input_stands_for_batches():
    inputs, labels = next(iter(in_place_of_data(EXAMPLE[:1], network(), 0)))
    assert inputs.shape == (32, 1, 6, 6)
    assert labels.shape == (32,)


def test_scores_of_every_place_get_a_label_each():
    segment = nn.Conv2d(1, 3, 1)
    inputs, labels = next(iter(in_place_of_data(EXAMPLE, segment, 0)))
    assert labels.shape == (64, 6, 6)
    assert torch.isfinite(F.cross_entropy(segment(inputs), labels))


@pytest.mark.parametrize("batches", [(), (None,)], ids=["left out", "None"])
def test_nio_needs_only_an_example(batches):
    model, other = network(), network()
    result = ni.nio_(model, *batches, example=EXAMPLE, steps=3)
    assert len(result.history) == 3
    same = ni.nio_(other, random_batches(EXAMPLE, 5), steps=3)
    assert result.scales == same.scales


def test_the_model_is_left_alone_by_optimize():
    model = network()
    before = snapshot(model)
    ni.optimize(model, example=EXAMPLE, method=ni.NIO(steps=2))
    assert_unchanged(before, model)


def test_every_learned_method_takes_an_example():
    for function in (ni.gradinit_, ni.metainit_):
        assert len(function(network(), example=EXAMPLE, steps=2).history) == 2
    assert ni.lsuv_(network(), example=EXAMPLE).scales


def test_neither_or_both():
    with pytest.raises(TypeError, match="Found neither"):
        ni.nio_(network())
    with pytest.raises(TypeError, match="Found both"):
        ni.nio_(network(), [EXAMPLE], example=EXAMPLE)


def test_labels_need_class_scores():
    with pytest.raises(ValueError, match=r"Found \(64,\)\. Pass `batches`"):
        ni.nio_(nn.Sequential(nn.Flatten(), nn.Linear(36, 1), nn.Flatten(0)), example=EXAMPLE)


def test_a_loss_of_ones_own_needs_batches():
    with pytest.raises(TypeError, match="With `compute_loss`, pass `batches`"):
        ni.nio_(network(), example=EXAMPLE, compute_loss=lambda model, batch: 0)
