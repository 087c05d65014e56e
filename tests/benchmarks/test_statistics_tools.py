"""Intervals and rank correlations."""

import pytest
import torch

from benchmarks.statistics_tools import bootstrap, paired, spearman


def test_the_bootstraps_interval_is_that_of_the_standard_error():
    values = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = bootstrap(values.tolist())
    half = 1.96 * float(values.std()) / 200**0.5
    assert found.value == pytest.approx(float(values.mean()))
    assert (found.low, found.high) == pytest.approx(
        (found.value - half, found.value + half), abs=0.1 * half
    )


def test_pairs_have_students_interval():
    found = paired([1.0, 2.0, 4.0], [0.0, 0.0, 0.0])
    half = 4.303 * torch.tensor([1.0, 2.0, 4.0]).std().item() / 3**0.5
    assert (found.low, found.high) == pytest.approx((7 / 3 - half, 7 / 3 + half))
    assert not found.certain
    assert paired([1.0, 1.1, 0.9], [0.0, 0.0, 0.0]).certain


def test_equal_values_share_their_rank():
    # ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3
    x = torch.tensor([0, 1.5, 1.5, 3]) - 1.5
    y = torch.tensor([0.0, 1, 2, 3]) - 1.5
    expected = float((x @ y) / (x.norm() * y.norm()))
    assert spearman([1, 5, 5, 9], [2, 3, 4, 50]).value == pytest.approx(expected)
