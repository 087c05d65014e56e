"""Initializing after sharding: the values are those of a model that is not sharded."""

import pytest
import torch

from tests.sharded.drawn import CALLS, Net, drawn, values_of
from tests.utils.ranks import run


def check(outcomes, kinds):
    for outcome in outcomes:
        assert "value" in outcome, outcome.get("trace")
        assert outcome == outcomes[0]
    for name in CALLS:
        model = Net().double()
        torch.manual_seed(0)
        expected, _ = values_of(name, model)
        for kind in kinds:
            found, again = outcomes[0]["value"][f"{kind} {name}"]
            assert again, (kind, name)
            for key, values in expected.items():
                torch.testing.assert_close(
                    torch.tensor(found[key], dtype=torch.float64),
                    torch.tensor(values, dtype=torch.float64),
                    rtol=1e-12 if name == "lsuv_" else 0.0,
                    atol=0.0,
                )


def test_values_do_not_depend_on_the_number_of_ranks(tmp_path):
    check(run(2, drawn, tmp_path, ["fsdp", "tensor"]), ["fsdp", "tensor"])


@pytest.mark.distributed
def test_values_of_fsdp_with_tensor_parallelism(tmp_path):
    check(run(4, drawn, tmp_path, ["fsdp", "both"]), ["fsdp", "both"])
