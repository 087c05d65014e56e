"""The cross entropy of all pieces in one call."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.agreement import contrast, noting_contrast, permuted
from neuroinit.kernels.cross_entropy import cross_entropies
from neuroinit.model.problem import Problem

PIECES = [(0, 2), (1, 6), (5, 8)]


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return torch.randn(8, 3).double(), torch.randint(3, (8,))


def test_the_losses_are_those_of_the_pieces(batch):
    output, target = batch
    found = cross_entropies(F.cross_entropy, output, target, PIECES)
    wanted = torch.stack([F.cross_entropy(output[a:b], target[a:b]) for a, b in PIECES])
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda y, t: (nn.CrossEntropyLoss(), y, t),
        lambda y, t: (F.nll_loss, y, t),
        lambda y, t: (F.cross_entropy, {"output": y}, t),
        lambda y, t: (F.cross_entropy, y.bfloat16(), t),
        lambda y, t: (F.cross_entropy, y.to("meta"), t.to("meta")),
        lambda y, t: (F.cross_entropy, y, F.one_hot(t).double()),
        lambda y, t: (F.cross_entropy, y, t.index_fill(0, torch.tensor([3]), -100)),
        lambda y, t: (F.cross_entropy, y[..., None], t[:, None]),
    ],
)
def test_other_losses_and_targets_are_left_to_the_caller(change, batch):
    assert cross_entropies(*change(*batch), PIECES) is None


def test_both_losses_of_the_agreement(batch):
    output, target = batch
    problem = Problem(nn.Linear(4, 3).double(), F.cross_entropy)
    _, targets = permuted(problem, (output, target))
    noted = []
    twins = [contrast(problem), noting_contrast(problem, noted)]
    found = [twin.losses_of_pieces(output, targets, PIECES) for twin in twins]
    together, noted[:] = list(noted), []
    for k, (a, b) in enumerate(PIECES):
        own = output[a:b], tuple(t[a:b] for t in targets)
        for twin, losses in zip(twins, found, strict=True):
            torch.testing.assert_close(losses[k], twin.loss_fn(*own))
        torch.testing.assert_close(together[k], noted[k])


def test_another_loss_has_no_losses_of_pieces(batch):
    problem = Problem(nn.Linear(4, 3).double(), F.mse_loss)
    for twin in (problem, contrast(problem), noting_contrast(problem, [])):
        targets = batch[1] if twin is problem else (batch[1], batch[1])
        assert twin.losses_of_pieces(batch[0], targets, PIECES) is None
