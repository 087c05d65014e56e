"""What goes wrong on one rank stops all of them, with one error, and changes no model."""

import pytest

from tests.distributed.failing import all_failures, cramped_on_one, fail, scales_in
from tests.utils.ranks import run

WAYS = {
    "loss raises": ("KeyError", "no such label"),
    "ends early": ("RuntimeError", "Rank 1 has no more batches"),
    "loader raises": ("RuntimeError", "OwnError: the disk is gone"),
    "not finite": ("NonFiniteError", "Step 2: The loss is not finite: nan"),
    "one loss is nan": ("NonFiniteError", "The loss is not finite: nan"),
    "other parameters": ("ValueError", "Rank 1 has other parameters than rank 0"),
    "other method": ("ValueError", "Rank 1 has other settings of the method than rank 0"),
    "other autocast": ("ValueError", "Rank 1 has other `autocast` than rank 0"),
    "no checkpoint": ("ValueError", "Rank 1 has other options than rank 0"),
    "bad argument": ("TypeError", "Parameter `batches` should be an iterable of batches"),
    "forms": ("ValueError", "cannot be joined"),
}


def test_all_ranks_raise_the_same_error_and_can_go_on(tmp_path):
    first, second = run(2, all_failures, tmp_path, list(WAYS))
    assert "value" in first, first["trace"]
    for how, (kind, text) in WAYS.items():
        found = first["value"][how]
        assert found[0] == kind, (how, found)
        assert text in found[1], (how, found)
        theirs = second["value"][how]
        if how == "loader raises":  # a type that rank 0 need not know
            assert theirs[:2] == ["OwnError", "the disk is gone"]
        else:
            assert theirs[:2] == found[:2]
    assert first["value"]["loss raises"][2] == ["This was raised on rank 1."]
    assert second["value"]["loss raises"][2] == []


def test_memory_that_runs_out_on_one_rank_makes_all_take_smaller_pieces(tmp_path):
    outcomes = run(2, cramped_on_one, tmp_path, [2, 3], ["auto", "stream"])
    assert "value" in outcomes[0], outcomes[0]["trace"]
    assert outcomes[0] == outcomes[1]
    expected = scales_in(10**9, "auto")
    for found in outcomes[0]["value"]:
        assert found == pytest.approx(expected, rel=1e-10)


def test_a_killed_rank_stops_the_others(tmp_path):
    first, second = run(2, fail, tmp_path, "killed")
    assert second is None
    assert first["error"] == "LostRankError", first
    assert "Lost contact with another rank" in first["text"]
