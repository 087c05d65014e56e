"""DDP and torch.compile are looked through, on every rank."""

import pytest
import torch

from tests.distributed.wrapped import all_wrapped
from tests.utils.moving import ni
from tests.utils.ranks import run
from tests.utils.shared import batches, plain


def test_wrapped_models_on_two_ranks(tmp_path):
    outcomes = run(2, all_wrapped, tmp_path)
    for outcome in outcomes:
        assert "value" in outcome, outcome.get("trace")
    assert outcomes[0] == outcomes[1]
    found = outcomes[0]["value"]
    torch.manual_seed(0)
    model = plain().double()
    result = ni.nio_(model, batches(), steps=3)
    assert found["weight"] == pytest.approx(model[0].weight.norm().item(), rel=1e-10)
    assert found["compiled"] == pytest.approx(result.scales, rel=1e-10)
    assert found["same"] is True
    assert found["alone"] == result.scales
    assert "`0` is a SyncBatchNorm" in found["waiting"]
    assert "Rank 1 has other scales at the end than rank 0" in found["uneven"]
