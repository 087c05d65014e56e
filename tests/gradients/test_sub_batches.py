import pytest
import torch

from neuroinit.gradients.plan import plan_pieces
from neuroinit.gradients.sub_batches import SPLITS, sub_batches
from tests.utils import oracles

SETTINGS = [
    (B, D, r) for B in (8, 16, 64, 128) for D in (2, 3, 4, 8) for r in (0.0, 0.2, 0.6, 0.75, 0.8)
]


@pytest.mark.parametrize("rule", SPLITS)
@pytest.mark.parametrize(("B", "D", "r"), SETTINGS)
def test_intervals_are_those_of_the_oracle(rule, B, D, r):
    expected = getattr(oracles, f"sub_batch_slices_{rule}")(B, D, r)
    if any(len(range(B)[s]) == 0 for s in expected):
        with pytest.raises(ValueError, match="empty"):
            sub_batches(B, D, r, rule)
    else:
        found = [list(range(*interval)) for interval in sub_batches(B, D, r, rule)]
        assert found == [list(range(B)[s]) for s in expected]


@pytest.mark.parametrize(("B", "D", "r"), SETTINGS)
def test_cover_uses_every_sample_in_sub_batches_of_one_length(B, D, r):
    intervals = sub_batches(B, D, r, "cover")
    assert set().union(*(range(*i) for i in intervals)) == set(range(B))
    assert len({stop - start for start, stop in intervals}) == 1
    assert intervals[-1][1] == B


def test_paper_split_covers_the_batch_for_two_sub_batches():
    for B in range(2, 129):
        for r in (0.0, 0.2, 0.6, 0.7, 0.75, 0.8):
            assert sub_batches(B, 2, r, "paper")[-1][1] == B


def test_samples_are_the_case_of_as_many_sub_batches():
    assert sub_batches(5, 5, 0.0, "cover") == [(i, i + 1) for i in range(5)]


def test_fewer_samples_than_sub_batches():
    with pytest.raises(ValueError, match="batch of 3 samples cannot be cut into `sub_batches = 4`"):
        sub_batches(3, 4, 0.0, "cover")


@pytest.mark.parametrize("microbatch", [None, 1, 3])
def test_pieces_are_disjoint_and_make_up_every_sub_batch(microbatch):
    intervals = sub_batches(20, 4, 0.5, "cover")
    made = plan_pieces(20, intervals, True, microbatch, one_forward=False)
    samples = [i for piece in made.pieces for i in range(*piece)]
    assert samples == list(range(20))
    assert all(stop - start <= (microbatch or 20) for start, stop in made.pieces)
    for row, interval in zip(made.weights, intervals, strict=True):
        weight_of_sample = torch.zeros(20, dtype=torch.float64)
        for w, (start, stop) in zip(row, made.pieces, strict=True):
            weight_of_sample[start:stop] = w / (stop - start)
        expected = torch.zeros(20, dtype=torch.float64)
        expected[slice(*interval)] = 1 / (interval[1] - interval[0])
        torch.testing.assert_close(weight_of_sample, expected)


def test_samples_that_see_each_other_are_never_cut_further():
    intervals = sub_batches(20, 4, 0.5, "cover")
    made = plan_pieces(20, intervals, independent=False, microbatch=None, one_forward=False)
    assert list(made.pieces) == intervals
    assert made.simple


def test_unused_samples_are_not_computed():
    intervals = sub_batches(64, 4, 0.6, "paper")
    made = plan_pieces(64, intervals, independent=True, microbatch=None, one_forward=False)
    assert made.pieces[-1][1] == intervals[-1][1] < 64
