"""``auto_`` and ``compare`` on two ranks choose what one process with all samples chooses."""

import pytest

from tests.distributed.chosen import (
    choose,
    choose_all,
    compare_on,
    compared,
    fail_in_auto,
    verify,
    verify_all,
)
from tests.utils.ranks import run

GAINS = (0.3, 1.0, 3.0)


@pytest.mark.parametrize("count", [12, 1])
def test_all_ranks_choose_what_one_process_chooses(tmp_path, count):
    first, second = run(2, choose_all, tmp_path, GAINS, count)
    assert "value" in first, first["trace"]
    assert first == second
    for gain in GAINS if count == 12 else ():
        expected = choose(gain, count)
        found = first["value"][str(gain)]
        assert found["winner"] == expected["winner"]
        for name, scores in expected["scores"].items():
            assert found["scores"][name] == pytest.approx(scores, rel=1e-9), name


def test_all_ranks_verify_what_one_process_verifies(tmp_path):
    first, second = run(2, verify_all, tmp_path, GAINS)
    assert "value" in first, first["trace"]
    assert first == second
    for gain in GAINS:
        found, expected = first["value"][str(gain)], verify(gain)
        assert found["verified"] == expected["verified"]
        assert found["scales"] == pytest.approx(expected["scales"], rel=1e-9)
    assert first["value"]["0.3"]["verified"].startswith("applied")


def test_compare_gives_the_statistics_of_the_union(tmp_path):
    first, second = run(2, compare_on, tmp_path)
    assert "value" in first, first["trace"]
    assert first == second
    for found, expected in zip(first["value"], compared(), strict=True):
        assert found.pop("method") == expected.pop("method")
        assert found.pop("failed") == expected.pop("failed") == ""
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_an_error_on_one_rank_is_raised_on_all(tmp_path):
    for outcome in run(2, fail_in_auto, tmp_path, "rollout"):
        assert (outcome["error"], outcome["text"]) == ("LookupError", "no such label"), outcome


def test_a_method_that_fails_on_one_rank_fails_on_all(tmp_path):
    first, second = run(2, fail_in_auto, tmp_path, "candidate")
    assert first == second
    failed = [r for r in first["value"][2].values() if not r.startswith("the same as")]
    assert failed == ["no such label"]


def test_a_killed_rank_is_no_method_that_failed(tmp_path):
    first, second = run(2, fail_in_auto, tmp_path, "killed")
    assert second is None
    assert first["error"] == "LostRankError", first
