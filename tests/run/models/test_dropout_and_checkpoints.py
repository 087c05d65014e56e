"""Random numbers, dropout and checkpointed modules."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.run.models.overlapping import OVERLAP, batch_of, network
from tests.utils.engines import ENGINES
from tests.utils.moving import ni


def test_random_numbers_of_python_and_numpy_are_the_same_on_every_engine():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, x):
            return self.body(x * (1 + random.random() + np.random.rand()))

    model = Noisy()
    runs = [ni.optimize(model, [batch_of()], method=OVERLAP, engine=e).scales for e in ENGINES]
    assert runs[0] == pytest.approx(runs[1], rel=1e-9)


def test_dropout_inside_functional_attention_is_off():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            y = x[:, None].transpose(0, 1)
            mixed, _ = F.multi_head_attention_forward(
                y, y, y, 6, 2, self.inner.in_proj_weight, self.inner.in_proj_bias, None, None,
                False, 0.5, self.inner.out_proj.weight, self.inner.out_proj.bias, training=True,
            )  # fmt: skip
            return self.head(mixed.transpose(0, 1)[:, 0] + self.inner(y, y, y)[0][0])

    model = Attention().double()
    values = set()
    for seed in range(3):
        torch.manual_seed(seed)
        values.add(ni.gradient_stats(model, batch_of()).norm)
    assert len(values) == 1


class Checkpointed(nn.Module):
    """A checkpointed block with functional dropout and weight_norm; the same without checkpoint."""

    def __init__(self, active):
        super().__init__()
        self.active = active
        torch.manual_seed(0)
        self.inner = parametrizations.weight_norm(nn.Linear(6, 6))
        self.head = nn.Linear(6, 3)

    def block(self, x):
        return F.dropout(torch.tanh(self.inner(x)), 0.5, training=self.training)

    def forward(self, x):
        y = checkpoint(self.block, x, use_reentrant=False) if self.active else self.block(x)
        return self.head(y)


@pytest.mark.parametrize("engine", ENGINES)
def test_checkpointed_modules_run_again_without_dropout(engine):
    runs = [
        ni.optimize(Checkpointed(active).double(), [batch_of()], method=OVERLAP, engine=engine)
        for active in (True, False)
    ]
    assert runs[0].scales == pytest.approx(runs[1].scales, rel=1e-12)


def test_reentrant_checkpointing_is_named():
    class Reentrant(Checkpointed):
        def forward(self, x):
            return self.head(checkpoint(self.block, x.requires_grad_(), use_reentrant=True))

    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        ni.optimize(Reentrant(True).double(), [batch_of()], method=OVERLAP)
