"""Tables of gains: pairs, and the units that are drawn again."""

import pytest

from benchmarks.comparisons.gains import difference
from benchmarks.medium.tables import tables


def test_cells_are_paired_and_networks_drawn_again():
    after = {("a", 0): 3.0, ("a", 1): 5.0, ("b", 0): 1.0}
    before = {("a", 0): 1.0, ("a", 1): 1.0, ("b", 0): 1.0}
    found = difference(after, before, list(after), lambda value: value)
    assert found.value == pytest.approx(2.0)  # of three cells, not of two networks
    assert (found.low, found.high) == pytest.approx((0.0, 3.0))  # all `b`, all `a`


def test_the_medium_table_pairs_by_seed():
    def row(start, seed, accuracy):
        return {
            "network": "ResNet-8",
            "norm": "w/ BN",
            "start": start,
            "seed": seed,
            "accuracy": accuracy,
            "area": 1.0,
            "cost": 7,
        }

    rows = [row("Kaiming", k, 0.5 + 0.1 * k) for k in range(4)]
    rows += [row("LSUV", k, 0.51 + 0.1 * k) for k in range(3)]  # one seed is missing
    rows += [row("GradInit", k, 0.5) for k in range(2)]  # too few to be shown
    line = tables(rows).splitlines()[-1]
    assert line.startswith("| w/ BN | LSUV | 3 | 61.0 | **+1.0 (+1.0 to +1.0)** |")
