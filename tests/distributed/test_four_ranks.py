"""More processes than sub-batches, and an uneven share for each: ``make test-distributed``."""

import pytest

from tests.distributed.failing import fail
from tests.distributed.test_ranks import check
from tests.utils.ranks import run
from tests.utils.shared import CASES, solve_all

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("world", [3, 4])
def test_more_ranks_than_sub_batches(tmp_path, world):
    engines = ("keep", "stream")
    check(run(world, solve_all, tmp_path, list(CASES), engines), CASES, engines)


def test_batches_of_their_own_are_joined(tmp_path):
    parts = [(0, 1), (1, 9), (9, 10), (10, 22)]
    check(run(4, solve_all, tmp_path, list(CASES), ("auto",), parts), CASES, ("auto",))


def test_equal_batches_of_a_tensor_parallel_group_count_once(tmp_path):
    parts, names = [(0, 7), (0, 7), (7, 22), (7, 22)], ["nio", "nio-bn", "lsuv"]
    check(run(4, solve_all, tmp_path, names, ("auto",), parts), names, ("auto",))


def test_a_killed_rank_stops_the_others_within_seconds(tmp_path):
    outcomes = run(4, fail, tmp_path, "killed", seconds=90)
    assert outcomes.pop(1) is None
    assert [outcome["error"] for outcome in outcomes] == ["LostRankError"] * 3, outcomes
