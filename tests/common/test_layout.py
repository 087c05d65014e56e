"""Counting, cutting and joining the samples of batches of every kind."""

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from neuroinit.common.layout import SAMPLES_FIRST, BatchLayout, batch_layout

Pair = namedtuple("Pair", "left right")


@dataclass
class Graph:
    x: Tensor
    label: str = "same"


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(6),
        (torch.arange(6), torch.arange(6)),
        [torch.arange(6), {"a": torch.arange(6), "flag": True}],
        Pair(torch.arange(6), torch.arange(6)),
        OrderedDict(a=torch.arange(6)),
        UserDict(a=torch.arange(6)),
        Graph(torch.arange(6)),
        {"a": torch.arange(6), "scalar": torch.tensor(3.0), "none": None},
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_cut_keeps_the_container_and_cuts_its_tensors(batch):
    assert SAMPLES_FIRST.size(batch) == 6
    part = SAMPLES_FIRST.cut(batch, 2, 5)
    assert type(part) is type(batch)
    assert SAMPLES_FIRST.size(part) == 3
    assert SAMPLES_FIRST.size(batch) == 6


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("text", "holds no tensor"),
        ({"a": torch.zeros(3), "b": torch.zeros(4)}, r"disagree about dimension 0.*\[3, 4\]"),
        (torch.zeros(0, 3), "has no samples"),
        (torch.tensor(1.0), "holds no tensor"),
    ],
)
def test_batches_that_cannot_be_cut(batch, message):
    with pytest.raises(ValueError, match=message):
        SAMPLES_FIRST.size(batch)


# -- lists of samples ------------------------------------------------------------------------------


def detection(count):
    """Images of different sizes, and a dict of boxes for each."""
    images = [torch.full((3, 4 + k, 5), float(k)) for k in range(count)]
    targets = [{"boxes": torch.zeros(k + 1, 4), "labels": torch.zeros(k + 1)} for k in range(count)]
    return images, targets


def test_lists_of_images_and_targets_are_samples():
    batch = detection(6)
    assert SAMPLES_FIRST.size(batch) == 6
    images, targets = SAMPLES_FIRST.cut(batch, 2, 5)
    assert [float(image[0, 0, 0]) for image in images] == [2, 3, 4]
    assert [len(target["boxes"]) for target in targets] == [3, 4, 5]


def test_tuples_of_images_and_targets_are_samples():
    """As ``tuple(zip(*batch))`` collates them."""
    batch = tuple(map(tuple, detection(6)))
    assert SAMPLES_FIRST.size(batch) == 6
    images, targets = SAMPLES_FIRST.cut(batch, 2, 5)
    assert [float(image[0, 0, 0]) for image in images] == [2, 3, 4]
    assert [len(target["boxes"]) for target in targets] == [3, 4, 5]
    joined = SAMPLES_FIRST.join([SAMPLES_FIRST.cut(batch, 0, 2), SAMPLES_FIRST.cut(batch, 2, 6)])
    assert whole(joined) == whole(batch)


def test_tuples_of_tensors_with_one_size_are_no_samples():
    batch = ((torch.zeros(8, 2), torch.zeros(8, 3)), (torch.zeros(8), torch.zeros(8)))
    assert SAMPLES_FIRST.size(batch) == 8


def test_a_list_of_samples_without_a_container():
    batch = [{"x": torch.zeros(k + 1)} for k in range(4)]
    assert SAMPLES_FIRST.size(batch) == 4
    assert SAMPLES_FIRST.cut(batch, 1, 3) == batch[1:3]


def test_a_collated_list_of_tensors_is_a_container():
    batch = [[torch.zeros(8, 2), torch.zeros(8, 3)], torch.zeros(8)]
    assert SAMPLES_FIRST.size(batch) == 8
    (left, right), labels = SAMPLES_FIRST.cut(batch, 0, 2)
    assert (len(left), len(right), len(labels)) == (2, 2, 2)


def test_a_list_that_may_be_either_is_refused():
    batch = {"images": [torch.zeros(3, 4, 4) for _ in range(5)]}
    with pytest.raises(
        ValueError, match=r"may hold 5 samples, or tensors of 3 samples each.*`cut="
    ):
        SAMPLES_FIRST.size(batch)


@pytest.mark.parametrize("kind", [list, tuple])
def test_texts_and_numbers_of_every_sample_are_cut_with_its_tensors(kind):
    """As torch's ``default_collate`` and collate functions of users make them."""
    names, lengths = kind("abcdef"), kind([1, 2, 3, 4, 5, 6])
    batch = {"names": names, "lengths": lengths, "x": torch.arange(6)}
    layout = SAMPLES_FIRST.settled(batch)
    part = layout.cut(layout.cut(batch, 1, 6), 1, 3)
    assert (part["names"], part["lengths"]) == (names[2:4], lengths[2:4])
    assert part["x"].tolist() == [2, 3]
    assert whole(layout.join([layout.cut(batch, 0, 2), layout.cut(batch, 2, 6)])) == whole(batch)


def test_names_next_to_lists_of_samples():
    images, targets = detection(6)
    sizes = [{**target, "size": (480, 640)} for target in targets]
    _, _, names = SAMPLES_FIRST.cut((images, sizes, tuple("abcdef")), 2, 5)
    assert names == ("c", "d", "e")


def test_other_lists_of_texts_and_numbers_are_kept():
    batch = {"classes": ["cat", "dog"], "size": (32, 32, 3), "x": torch.arange(6)}
    part = SAMPLES_FIRST.cut(batch, 2, 5)
    assert (part["classes"], part["size"]) == (["cat", "dog"], (32, 32, 3))


# -- other kinds -----------------------------------------------------------------------------------


def test_packed_sequences_are_cut_by_sequence():
    sequences = [torch.arange(float(n)) for n in (2, 5, 3, 4)]
    batch = pack_sequence(sequences, enforce_sorted=False)
    assert SAMPLES_FIRST.size(batch) == 4
    found = unpack_sequence(SAMPLES_FIRST.cut(batch, 1, 3))
    assert [len(s) for s in found] == [5, 3]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_cut_by_their_components(layout):
    parts = [torch.full((n, 2), float(n)) for n in (2, 5, 3)]
    batch = torch.nested.nested_tensor(parts, layout=layout)
    assert SAMPLES_FIRST.size(batch) == 3
    found = SAMPLES_FIRST.cut(batch, 1, 3).unbind()
    assert [tuple(t.shape) for t in found] == [(5, 2), (3, 2)]


class Points:
    """An object with a length and slices."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return Points(self.values[index])


def test_objects_that_can_be_sliced():
    batch = {"points": Points(list(range(6))), "y": torch.arange(6)}
    assert SAMPLES_FIRST.size(batch) == 6
    part = SAMPLES_FIRST.cut(batch, 2, 4)
    assert (part["points"].values, part["y"].tolist()) == ([2, 3], [2, 3])


def test_arrays_of_numpy():
    batch = (np.zeros((6, 2)), np.arange(6))
    assert SAMPLES_FIRST.size(batch) == 6
    assert SAMPLES_FIRST.cut(batch, 1, 4)[1].tolist() == [1, 2, 3]


def test_another_dimension():
    layout = BatchLayout(dim=1)
    batch = (torch.arange(24).view(4, 6), torch.arange(6))  # (time, samples), one label per sample
    assert layout.size(batch) == 6
    series, labels = layout.cut(batch, 1, 3)
    assert series.shape == (4, 2)
    assert labels.tolist() == [1, 2]


def test_a_function_of_the_users():
    layout = batch_layout(lambda batch, i, j: (batch[0][i:j], batch[1]), 0)
    batch = (["a", "b", "c"], torch.zeros(7, 2))
    assert layout.size(batch) == 3
    assert layout.cut(batch, 0, 2)[0] == ["a", "b"]


@pytest.mark.parametrize(
    ("cut", "dim", "error", "message"),
    [(3, 0, TypeError, "`cut` should be callable"), (None, -1, ValueError, "`batch_dim` should")],
)
def test_bad_arguments(cut, dim, error, message):
    with pytest.raises(error, match=message):
        batch_layout(cut, dim)


# -- joining ---------------------------------------------------------------------------------------


def whole(batch):
    """A text that can be compared."""
    if isinstance(batch, Tensor) and batch.is_nested:
        return repr([t.tolist() for t in batch.unbind()])
    return repr(batch)


@pytest.mark.parametrize(
    "batch",
    [
        (torch.arange(12).view(6, 2), {"y": torch.arange(6)}),
        detection(6),
        [torch.arange(6), [torch.arange(6), torch.arange(6)]],
        torch.nested.nested_tensor([torch.ones(n) for n in (1, 2, 3, 4)], layout=torch.jagged),
        (np.arange(6), torch.tensor(2.0)),
    ],
    ids=["containers", "lists", "nested lists", "nested tensors", "arrays"],
)
def test_joining_undoes_cutting(batch):
    size = SAMPLES_FIRST.size(batch)
    parts = [SAMPLES_FIRST.cut(batch, i, j) for i, j in ((0, 1), (1, 3), (3, size))]
    assert whole(SAMPLES_FIRST.join(parts)) == whole(SAMPLES_FIRST.cut(batch, 0, size))


def test_joining_packed_sequences():
    sequences = [torch.arange(float(n)) for n in (2, 5, 3, 4)]
    packed = [pack_sequence(s, enforce_sorted=False) for s in (sequences[:1], sequences[1:])]
    found = unpack_sequence(SAMPLES_FIRST.join(packed))
    assert [len(s) for s in found] == [2, 5, 3, 4]


def test_batches_of_different_lengths_cannot_be_joined():
    with pytest.raises(ValueError, match=r"shapes \[\(2, 3\), \(2, 4\)\] cannot be joined"):
        SAMPLES_FIRST.join([torch.zeros(2, 3), torch.zeros(2, 4)])


def image():
    return torch.zeros(3, 5, 5)


def boxes(count):
    return {"boxes": torch.zeros(count, 4), "labels": torch.zeros(count)}


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", [
    lambda n: ([image() for _ in range(n)], [boxes(3) for _ in range(n)]),  # as many as channels
    lambda n: {"images": torch.zeros(n, 3, 5, 5), "targets": [boxes(n) for _ in range(n)]},
    lambda n: [{"image": image(), "height": 5} for _ in range(n)],
    lambda n: [(image(), 7) for _ in range(n)],
    lambda n: [[image(), torch.tensor(7)] for _ in range(n)],
])  # fmt: skip
def test_lists_of_records_are_samples(kind, count):
    batch = kind(count)
    assert SAMPLES_FIRST.size(batch) == count
    part = SAMPLES_FIRST.cut(batch, 0, 1)
    leaves = torch.utils._pytree.tree_leaves(part)
    assert SAMPLES_FIRST.size(part) == 1
    assert all(t.shape[-2:] == (5, 5) for t in leaves if isinstance(t, Tensor) and t.ndim >= 3)


def test_a_list_of_dicts_that_may_be_batches_is_refused():
    with pytest.raises(ValueError, match=r"may hold 4 samples, or tensors of 3 samples each.*cut="):
        SAMPLES_FIRST.size([{"image": image()} for _ in range(4)])


def test_parts_are_read_like_the_batch_that_they_are_cut_from():
    sequences = [torch.zeros(k, 2) for k in (2, 2, 3, 5)]
    batch = sequences, torch.zeros(4)
    part = SAMPLES_FIRST.settled(batch).cut(batch, 0, 2)  # two sequences of two steps
    (first,), target = SAMPLES_FIRST.settled(batch).cut(part, 0, 1)
    assert first.shape == (2, 2)
    assert target.shape == (1,)
