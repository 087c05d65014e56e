"""Short trainings take the steps of an ordinary training loop."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuroinit.common.layout import SAMPLES_FIRST
from neuroinit.common.tensors import zeros_if_missing
from neuroinit.model.problem import Problem
from neuroinit.run.rollout import Rollout, full_batches
from tests.run.verify.networks import learnable, sgd
from tests.utils import oracles
from tests.utils.architectures import ZOO, case
from tests.utils.architectures.state import FunctionalDropout
from tests.utils.snapshots import assert_unchanged, snapshot


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


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_a_pass_that_keeps_torchs_layers_gives_the_gradient_of_the_oracle(found):
    torch.manual_seed(0)
    model, batch = found.build(), found.batch(8)
    problem = Problem(model, found.loss_fn, found.compute_loss)
    before, prepared = snapshot(model), problem.prepare(batch)
    point, names = problem.at(problem.unit_scales), problem.trainable
    with point.session() as session, session.keeping_layers():
        loss = session.loss(prepared)
        kept = zeros_if_missing(
            session.gradient_by(loss, point.tensors(names)), point.tensors(names)
        )
    assert_unchanged(before, model)
    slices = oracles.sub_batch_slices_cover(8, 1, 0.0)
    grams = oracles.layer_grams(model, batch, slices, found.loss_fn, found.compute_loss)
    tolerance = 1e-4 if found.name in ("float32", "bfloat16") else 1e-9
    for name, gradient in zip(names, kept, strict=True):
        own = grams[name] if name in grams else grams[f"_orig_mod.{name}"]
        squared = float(gradient.to_dense().double().square().sum())
        assert squared == pytest.approx(float(own), tolerance, 1e-18), name


def test_dropout_is_off_in_short_trainings():
    torch.manual_seed(0)
    model, data = case("functional_dropout").build(), [case("functional_dropout").batch(8)] * 3
    without = FunctionalDropout(p=0.0).double()
    without.load_state_dict(model.state_dict())
    losses = []
    for network in (model, without):
        rollout = Rollout(problem := Problem(network, F.cross_entropy), problem.original, sgd)
        rollout.train(iter(data), 3)
        losses.append([*rollout.losses, *rollout.outcome(data[:1]).losses])
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
