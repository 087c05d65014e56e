"""Two processes do what one does; four are in test_four_ranks.py."""

import pytest

from tests.utils.ranks import run
from tests.utils.shared import CASES, solve, solve_all

ROUNDING = 1e-9  # of the scale of a bias before BatchNorm: Adam divides its zero derivative by 1e-8


def assert_alike(found, expected, idle=()):
    assert found.keys() == expected.keys()
    assert found["drawn"] == expected["drawn"]
    assert found["scales"].keys() == expected["scales"].keys()
    for name, scale in expected["scales"].items():
        tolerance = ROUNDING if name in idle else 1e-10
        assert found["scales"][name] == pytest.approx(scale, rel=tolerance), name
    for key in ("norms", "losses", "after"):
        assert found[key] == pytest.approx(expected[key], rel=1e-9, nan_ok=True), key


def check(outcomes, names, engines):
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None, f"rank {rank} did not come back"
        assert "value" in outcome, outcome.get("trace")
    assert [o["value"] for o in outcomes] == [outcomes[0]["value"]] * len(outcomes)
    for name in names:
        expected = solve(name)
        for engine in engines:
            idle = ("0.bias",) if name.endswith("-bn") else ()
            assert_alike(outcomes[0]["value"][f"{name} {engine}"], expected, idle)


def test_two_ranks_find_what_one_finds(tmp_path):
    engines = ("keep", "stream")
    check(run(2, solve_all, tmp_path, list(CASES), engines), CASES, engines)


def test_batches_of_their_own_are_joined(tmp_path):
    parts = [(0, 7), (7, 22)]
    check(run(2, solve_all, tmp_path, list(CASES), ("auto",), parts), CASES, ("auto",))
