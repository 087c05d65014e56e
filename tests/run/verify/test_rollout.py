"""Short trainings take the steps of an ordinary training loop."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.model.problem import Problem
from neuroinit.run.rollout import Rollout, full_batches
from tests.run.verify.networks import learnable, sgd


class Checkpointed(nn.Module):
    """Runs a normalized block again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=False))


def test_short_trainings_take_the_steps_of_a_training_loop_with_checkpointed_modules():
    torch.manual_seed(0)
    model, data = Checkpointed().double(), [(x.double(), y) for x, y in learnable(3)]
    rollout = Rollout(problem := Problem(model, F.cross_entropy, None), problem.original, sgd)
    rollout.train(iter(data), 3)
    optimizer, losses = sgd(model.parameters()), []
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert rollout.losses == pytest.approx(losses, rel=1e-12)


def test_short_trainings_leave_the_gradients_of_sparse_embeddings_sparse():
    torch.manual_seed(0)
    batch = torch.randint(11, (12, 5)), torch.randint(3, (12,))
    problem = Problem(nn.EmbeddingBag(11, 3, sparse=True), F.cross_entropy, None)
    rollout = Rollout(problem, problem.original, lambda p: torch.optim.SparseAdam(p, lr=0.1))
    rollout.train(iter([batch] * 3), 3)
    assert rollout.losses[2] < rollout.losses[0]


def test_batches_that_are_a_little_shorter_take_part():
    batches = [(torch.zeros(size, 8), torch.zeros(size)) for size in (32, *[31] * 9, 3)]
    assert [len(y) for _, y in full_batches(batches, SAMPLES_FIRST)] == [32, *[31] * 9]
