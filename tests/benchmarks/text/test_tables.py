"""Tables of the text suite: which networks are counted, and what equal cost means."""

import pytest

from benchmarks.text.grid import OPTIMIZERS, ROWS, STEPS
from benchmarks.text.tables import at_equal_cost, difference, load


def record(method, seed, test, cost=0.0):
    shared = {"norm": "pre", "blocks": 6, "curve": [4.0] * 5 + [3.0] * 5, "cost": cost}
    return [
        {"method": method, "seed": seed, "optimizer": o, "warmup": w, "test": test, **shared}
        for o in OPTIMIZERS
        for w in (False, True)
    ]


def test_only_networks_that_every_row_has_are_counted():
    rows = [m for m in ROWS if "pre" in ROWS[m].norms]
    records = [r for m in rows for r in record(m, 0, 2.5 if m == "auto_" else 3.0)]
    records += [r for m in rows[:-1] for r in record(m, 1, 3.5)]  # the last row lacks this network
    found = load(records)
    assert {cell[0] for cell in found["as it is"]} == {("pre", 6, 0)}
    gain = difference(found, "auto_", list(found["auto_"]), lambda r: r["test"])
    assert gain.value == pytest.approx(-0.5)


def test_at_equal_cost_the_start_is_paid_in_training_steps():
    costs = (0.0, STEPS / 2, STEPS + 1.0)
    losses = [at_equal_cost(record("LSUV", 0, 3.0, cost)[0]) for cost in costs]
    assert losses == [3.0, 4.0, 4.17]  # the last: nothing is left to train with
