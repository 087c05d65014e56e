"""Which part of a batch the targets are."""

from typing import NamedTuple

import pytest
import torch

from neuroinit.common.layout import BatchLayout, batch_layout


class Pair(NamedTuple):
    inputs: torch.Tensor
    labels: torch.Tensor


@pytest.mark.parametrize(
    ("batch", "targets"),
    [
        ((torch.arange(4), torch.arange(4)), None),
        ([torch.arange(4), torch.arange(4)], None),
        ({"x": torch.arange(4), "labels": torch.arange(4)}, None),
        ({"x": torch.arange(4), "y": torch.arange(4)}, "y"),
        ((torch.arange(4), torch.arange(4), torch.arange(4)), 1),
        (Pair(torch.arange(4), torch.arange(4)), "labels"),
        ((torch.arange(4), [{"box": torch.tensor([i])} for i in range(4)]), None),
    ],
)
def test_targets_move_and_inputs_stay(batch, targets):
    found = BatchLayout(targets=targets).with_other_targets(batch, 1)
    assert type(found) is type(batch)
    values = list(found.values()) if isinstance(found, dict) else list(found)
    moved = values[1]
    if isinstance(moved, list):
        moved = torch.cat([sample["box"] for sample in moved])
    assert moved.tolist() == [1, 2, 3, 0]
    assert values[0].tolist() == [0, 1, 2, 3]
    assert all(value.tolist() == [0, 1, 2, 3] for value in values[2:])


def test_several_targets_move_together():
    batch = {"x": torch.arange(4), "y": torch.arange(4), "z": torch.arange(4)}
    found = BatchLayout(targets=("y", "z")).with_other_targets(batch, 3)
    assert [v.tolist() for v in found.values()] == [[0, 1, 2, 3], [3, 0, 1, 2], [3, 0, 1, 2]]


@pytest.mark.parametrize("targets", [-1, 1.0, True, (), ("y", None)])
def test_targets_of_a_wrong_kind(targets):
    with pytest.raises(TypeError, match="Parameter `targets` should be the key or index"):
        batch_layout(None, 0, targets)


@pytest.mark.parametrize(
    ("batch", "targets", "message"),
    [
        ({"x": torch.zeros(4)}, None, "are the targets\\? Name it"),
        ({"x": torch.zeros(4)}, "y", "has no entry `targets = 'y'`"),
        ((torch.zeros(4), torch.zeros(4)), 2, "has no entry `targets = 2`"),
    ],
)
def test_targets_that_are_not_there(batch, targets, message):
    with pytest.raises(ValueError, match=message):
        BatchLayout(targets=targets).with_other_targets(batch, 1)


def test_targets_cannot_be_permuted_through_a_custom_cut():
    layout = BatchLayout(custom=lambda batch, start, stop: batch[start:stop])
    with pytest.raises(ValueError, match="with `cut=` cannot be permuted"):
        layout.with_other_targets(torch.zeros(4), 1)
