"""Checkpoints of a run: a restored run continues with the same bits."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.experiments.training.folder.checkpoint import restore, save

pytest.importorskip("safetensors", reason='needs pip install "neuroinit[experiments]"')
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd without momentum": lambda p: torch.optim.SGD(p, lr=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def begin(make):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))
    return model, make(model.parameters())


def step(model, optimizer):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    optimizer.step()


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_restored_run_continues_bit_identically(tmp_path, make):
    model, optimizer = begin(make)
    step(model, optimizer)
    save(tmp_path / "checkpoint", model, optimizer, {"step": 1})
    step(model, optimizer)
    wanted, number = model.state_dict(), torch.rand(1)
    other, own = begin(make)
    assert restore(tmp_path / "checkpoint", other, own) == {"step": 1}
    step(other, own)
    assert torch.equal(torch.rand(1), number)
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
