import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def fully_shard_on_cpus():
    """``fully_shard`` of torch 2.6 needs an accelerator: its streams of a CPU record no event."""
    if not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("this torch shards models on accelerators only")
