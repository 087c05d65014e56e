"""A copy of a model in float64, for tests that rounding errors could disturb."""

from __future__ import annotations

import copy

from torch import Tensor

from neuroinit.common.batches import Batch, map_tensors
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem


def in_double(point: Point, batch: Batch) -> tuple[Point, Batch]:
    """The same point of a copy of the model in float64, and a batch in float64.

    Raises:
        RuntimeError, TypeError, ValueError: If the model cannot be copied.
    """
    problem = point.problem
    loss_fn = problem.loss_fn if problem.compute_loss is None else None
    model = copy.deepcopy(problem.model).double()
    twin = Problem(model, loss_fn, problem.compute_loss, layout=problem.layout)
    twin.seed = problem.seed
    values = {n: _as_double(t).requires_grad_(t.requires_grad) for n, t in point.values.items()}
    return twin.at_values(values), map_tensors(_as_double, batch)


def _as_double(tensor: Tensor) -> Tensor:
    own = tensor.detach()
    return own.double() if own.is_floating_point() else own
