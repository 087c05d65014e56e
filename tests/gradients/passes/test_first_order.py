"""Sums of piece gradients, against the sum written out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.gradients.passes.first_order import rows_of, sub_batch_gradients, sums_of_pieces
from neuroinit.gradients.passes.pieces import Pass
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem

WEIGHTS = torch.tensor(
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.25, 0.75, 0.0], [0.0, 0.0, 0.5, 0.5]], dtype=torch.float64
)


@pytest.mark.parametrize("in_place", [False, True])
def test_sums_are_those_of_a_matrix_product(in_place):
    torch.manual_seed(0)
    gradients = torch.randn(4, 7, dtype=torch.float64)
    before = gradients.clone()
    sums = list(sums_of_pieces([gradients[:1], gradients[1:]], WEIGHTS, in_place))
    torch.testing.assert_close(torch.stack(sums), WEIGHTS @ before)
    assert torch.equal(gradients, before)


def test_a_sum_is_yielded_as_soon_as_its_last_piece_is_known():
    read = []

    def rows():
        for s in range(4):
            read.append(s)
            yield torch.ones(1, 2)

    known = [len(read) for _ in sums_of_pieces(rows(), WEIGHTS)]
    assert known == [2, 3, 4]


def test_rows_and_losses_of_passes():
    passes = [
        Pass([torch.tensor(float(k))], (torch.full((2, 2), k), torch.ones(1))) for k in (1, 2)
    ]
    losses = []
    rows = torch.cat(list(rows_of(passes, losses)))
    assert rows.tolist() == [[1, 1, 1, 1, 1], [2, 2, 2, 2, 1]]
    assert [float(loss) for loss in losses] == [1, 2]


def test_gradients_of_overlapping_sub_batches_are_those_of_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    batch = torch.randn(9, 4, dtype=torch.float64), torch.randint(3, (9,))
    problem = Problem(model, F.cross_entropy)
    plan = make_plan(problem, batch, 2, 0.5, "cover", "sub-batch")
    assert not plan.simple
    with problem.at(problem.unit_scales).session() as session:
        found = list(sub_batch_gradients(session, batch, plan, problem.trainable))
    for gradient, (start, stop) in zip(found, [(0, 6), (3, 9)], strict=True):
        loss = F.cross_entropy(model(batch[0][start:stop]), batch[1][start:stop])
        parts = torch.autograd.grad(loss, list(model.parameters()))
        torch.testing.assert_close(gradient, torch.cat([g.reshape(-1) for g in parts]))


def test_a_call_computes_the_same_whatever_was_computed_before():
    """The number of passes does not depend on whether the model was tested before."""
    torch.manual_seed(0)
    forwards = []

    class Counted(nn.Linear):
        def forward(self, x):
            forwards.append(len(x))
            return super().forward(x)

    batch = torch.randn(16, 4, dtype=torch.float64), torch.randint(3, (16,))
    problem, found = Problem(Counted(4, 3).double(), F.cross_entropy), []
    plan = make_plan(problem, batch, 8, 0.0, "cover", "sub-batch")
    for _ in range(2):
        with problem.at(problem.unit_scales).session() as session:
            found.append(list(sub_batch_gradients(session, batch, plan, problem.trainable)))
    assert forwards == [3, 6, 9, *(4, 4, 4, 4), *(4, 4, 4, 4)]  # the test of two pieces comes first
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
