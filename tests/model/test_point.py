"""Points are values: several exist at once, and a session leaves the model as it was."""

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.model.problem import Problem
from tests.utils.snapshots import assert_unchanged, snapshot


def problem_and_batch(model=None):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return Problem(model.double(), F.cross_entropy), (
        torch.randn(6, 4, dtype=torch.float64),
        torch.randint(3, (6,)),
    )


def loss_at(point, batch):
    with point.session() as session:
        return session.loss_value(batch)


def test_two_points_of_one_problem_do_not_disturb_each_other():
    problem, batch = problem_and_batch()
    before = snapshot(problem.model)
    start, doubled = problem.at(problem.unit_scales), problem.at(2 * problem.unit_scales)
    expected = F.cross_entropy(problem.model(batch[0]), batch[1]).item()
    values = [loss_at(point, batch) for point in (start, doubled, start)]
    assert values[0] == values[2] == expected
    assert values[1] != expected
    assert_unchanged(before, problem.model)


def test_a_moved_point_has_the_steps_added_and_the_same_scales():
    problem, _ = problem_and_batch()
    point = problem.at(2 * problem.unit_scales)
    moved = point.moved({"0.bias": torch.ones(5, dtype=torch.float64)})
    assert torch.equal(moved.values["0.bias"], point.values["0.bias"] + 1)
    assert torch.equal(moved.values["0.weight"], point.values["0.weight"])
    assert moved.scales == point.scales
    assert all(t.is_leaf and t.requires_grad for t in moved.values.values())


def test_running_statistics_are_a_value_of_the_problem():
    problem, batch = problem_and_batch(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    running = problem.with_norm_statistics("running")
    before = snapshot(problem.model)
    by_batch, by_buffers = (loss_at(p.at(p.unit_scales), batch) for p in (problem, running))
    assert_unchanged(before, problem.model)
    with torch.no_grad():
        assert by_buffers == float(F.cross_entropy(problem.model.eval()(batch[0]), batch[1]))
        assert by_batch == float(F.cross_entropy(problem.model.train()(batch[0]), batch[1]))
    assert by_batch != by_buffers


def test_the_first_batch_settles_the_layout_of_all_copies_of_a_problem():
    problem, _ = problem_and_batch()
    running = problem.with_norm_statistics("running")
    images = [torch.randn(3, 4, dtype=torch.float64) for _ in range(3)]
    problem.prepare((images, torch.zeros(3, dtype=torch.int64)))
    assert problem.layout.known != ()
    assert running.layout == problem.layout
