"""Paired tests and intervals over networks."""

import pytest

from benchmarks.statistics_tools import compared, halves, sign_test


def cells(**networks):
    return {(name, k): score for name, row in networks.items() for k, score in enumerate(row)}


def test_counts_and_the_mean():
    found = compared(cells(a=[1, 1], b=[0, 1], c=[1, 1]), cells(a=[0, 0], b=[1, 1], c=[1, 1]))
    assert (found.cells, found.groups, found.better, found.worse) == (6, 3, 2, 1)
    assert found.mean == pytest.approx(1 / 6)
    assert found.p == 1.0  # one network is better, one is worse
    assert found.low <= found.mean <= found.high


def test_cells_of_one_network_are_one_draw():
    """Ten cells of one network that all win say little."""
    some = compared(cells(a=[1] * 10, b=[0]), cells(a=[0] * 10, b=[0]))
    assert some.low == 0.0
    many = {f"n{k}": [1] for k in range(10)}
    sure = compared(cells(**many), cells(**{k: [0] for k in many}))
    assert sure.low == 1.0
    assert sure.p == pytest.approx(2 / 2**10)


def test_only_shared_cells_count():
    found = compared(cells(a=[1, 1]), cells(a=[0]))
    assert found.cells == 1
    with pytest.raises(ValueError, match="no cell in common"):
        compared(cells(a=[1]), cells(b=[1]))


def test_the_sign_test_has_two_sides():
    assert sign_test(5, 5) == sign_test(0, 5) == pytest.approx(2 / 32)
    assert sign_test(3, 6) == 1.0


def test_halves_alternate():
    assert halves(["a", "b", "c"]) == (["a", "c"], ["b"])
