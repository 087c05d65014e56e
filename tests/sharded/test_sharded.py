"""Sharded models, by differences: on smooth networks they find what the exact engines find."""

import pytest
import torch
import torch.nn.functional as F

import neuroinit as ni
from tests.utils.fsdp import METHOD, all_sharded, smooth
from tests.utils.ranks import run
from tests.utils.shared import batches


def test_sharded_models_find_what_whole_ones_find(tmp_path):
    outcomes = run(2, all_sharded, tmp_path)
    for outcome in outcomes:
        assert "value" in outcome, outcome.get("trace")
    assert outcomes[0] == outcomes[1]
    for sharding, width in (("fsdp", 9), ("tensor", 8)):
        expected = ni.optimize(smooth(width=width), batches(), F.cross_entropy, METHOD)
        found = outcomes[0]["value"][sharding]
        assert found["scales"] == pytest.approx(expected.scales, rel=1e-5), sharding
        assert found["after"] == pytest.approx([expected.after.cosine, expected.after.norm], 1e-4)
        assert found["promises"] == [True, True, True]
    sharded, method, inexact = outcomes[0]["value"]["refused"]
    assert "The model is sharded" in sharded
    assert "is not supported by `GradInit`" in method
    assert "is too inexact for this model" in inexact


def test_differences_on_one_process():
    exact = ni.optimize(smooth(), batches(), F.cross_entropy, METHOD)
    found = ni.optimize(smooth(), batches(), F.cross_entropy, METHOD, engine="differences")
    assert found.scales == pytest.approx(exact.scales, rel=1e-5)
    assert found.engine == "differences"


def test_a_model_without_double_backward_can_go_by_differences():
    class Far(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.points = torch.nn.Parameter(torch.randn(3, 5, dtype=torch.float64))

        def forward(self, x):
            return -torch.cdist(x, self.points)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 5).double(), torch.nn.Tanh(), Far())
    with pytest.raises(RuntimeError, match="cdist"):
        ni.optimize(model, batches(), method=METHOD)
    result = ni.optimize(model, batches(), method=METHOD, engine="differences")
    assert set(result.scales) == {"0.weight", "0.bias", "2.points"}
