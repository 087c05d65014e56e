"""Ctrl-C on one rank, or on all, ends the run on all of them."""

import pytest
import torch

from tests.distributed.interrupted_ranks import interrupted, interrupted_at_the_end
from tests.utils.ranks import run


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "fsdp"])
@pytest.mark.parametrize("everyone", [False, True])
def test_all_ranks_are_interrupted_together(tmp_path, everyone, sharded):
    """Models are as before, and one that is sharded by FSDP2 can be trained."""
    if sharded and not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("this torch shards models on accelerators only")
    count = 3 if sharded else 12
    outcomes = run(2, interrupted, tmp_path, 0, count, everyone, sharded, seconds=300)
    for outcome in outcomes:
        assert outcome is not None
        assert "value" in outcome, outcome["trace"]
    attempts = list(zip(*(outcome["value"] for outcome in outcomes), strict=True))
    assert any(first[0] == "KeyboardInterrupt" for first, _ in attempts)
    for (first, *_, unchanged), (second, *_, unchanged_too) in attempts:
        assert first == second or {first, second} == {"finished", "late"}
        assert first in ("KeyboardInterrupt", "finished", "late")
        assert unchanged is unchanged_too is True


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_all_ranks_change_their_model_or_none_does(tmp_path, late):
    """An interrupt after the last exchange waits until the model is changed, as on other ranks."""
    outcomes = run(2, interrupted_at_the_end, tmp_path, late)
    found = [outcome.get("value", outcome) for outcome in outcomes]
    assert found == [
        ["KeyboardInterrupt", late],
        ["finished" if late else "KeyboardInterrupt", late],
    ]
