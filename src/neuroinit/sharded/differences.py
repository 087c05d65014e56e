"""The engine `differences`: central differences of gradients, where no exact engine works.

    H_d v_d  is about  ( g_d(theta + h v_d) - g_d(theta - h v_d) ) / 2h

needs first-order passes only. The error is small for smooth networks, about 10% with ReLU, and too
large to be useful for ReLU with BatchNorm. So the engine is never chosen automatically, and
:meth:`Differences.check` tests it before the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.tensors import flatten, to_host, unflatten
from neuroinit.gradients.collectors import AllGradients, Objective
from neuroinit.gradients.engines import Derivative, Engine
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.passes.first_order import sub_batch_gradients
from neuroinit.gradients.plan import Plan, share_of
from neuroinit.model.finite import check_derivative
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.sharded.problem import ShardedProblem

# largest error of a directional derivative, relative to its true value
TOLERANCES = {torch.float64: 1e-4}
OTHERWISE = 0.1  # for other dtypes: in float32, rounding errors and kinks nearly reach this


class Differences(Engine):
    """Central differences of gradients: approximate, with first-order passes only."""

    name = "differences"
    exact = False

    def prepare(self, problem: Problem, batch: Batch, plan: Plan, scales: Tensor) -> None:
        """Test the engine on the first batch; spread its samples over the ranks if possible."""
        if isinstance(problem, ShardedProblem):
            problem.try_spreading(batch)
        self.check(problem, batch, plan, scales)

    def derivative(
        self, point: Point, batch: Batch, plan: Plan, objective: Objective, gram: bool = False
    ) -> Derivative:
        """See :meth:`Engine.derivative`; all gradients are held, whatever the objective reads."""
        problem = point.problem
        with problem.ranks.together():
            found = _Gradients(point, batch, plan, objective)
            by_scale = torch.zeros_like(problem.unit_scales)
            theta = flatten(point.tensors(problem.differentiated))
            if len(found.gradients):
                directions = found.evaluated.of(0, found.gradients)
                size, lengths = to_host(problem.norm(theta), problem.norms(directions))
                by_theta = torch.zeros_like(theta)
                for index, length in enumerate(lengths.tolist()):
                    if length > 0:
                        h = step_length(theta) * float(size) / length
                        part, v = found.share.plan.only(index), directions[index]
                        ahead, behind = (_gradient_at(point, batch, part, x * v) for x in (h, -h))
                        by_theta.add_(ahead - behind, alpha=1 / (2 * h))
                by_scale = problem.by_scales(by_theta)
            by_scale = check_derivative(problem.ranks.sum(by_scale), problem.scaled)
            evaluated = found.evaluated
            return Derivative(evaluated.value, by_scale, evaluated.moments, found.loss)

    def check(self, problem: Problem, batch: Batch, plan: Plan, scales: Tensor) -> float:
        """Compare two derivatives by the scales with central differences along one direction.

        They are the derivatives of the objective ``log GN + GC`` and of the loss. The direction is
        the derivative of the objective by ``log w``. The differences have two step lengths and are
        of fourth order; those of the objective need first-order gradients only, those of the loss
        none.

        Returns:
            The relative error of the objective's derivative.

        Raises:
            ValueError: If an error is above the tolerance for the model's dtype.
        """
        found = self.derivative(problem.at(scales), batch, plan, _log_norm_and_cosine).gradient
        claimed = float((found * scales).norm())
        direction = found * scales / claimed
        with problem.ranks.together():

            def along(step: float) -> _Gradients:
                point = problem.at(scales * torch.exp(step * direction))
                return _Gradients(point, batch, plan, _log_norm_and_cosine)

            slope = float(along(0.0).loss_by_scales() @ (scales * direction))
            widest = problem.start[problem.scaled[0]]
            h, tolerance = step_length(widest), TOLERANCES.get(widest.dtype, OTHERWISE)
            around = {step: along(step) for step in (2 * h, h, -h, -2 * h)}
        true_slope = _fourth_order({x: at.loss for x, at in around.items()}, h)
        true_change = _fourth_order({x: at.evaluated.value for x, at in around.items()}, h)
        size = max(1.0, abs(around[h].loss))  # the slope of a flat loss is a rounding error
        if not abs(slope - true_slope) <= tolerance * max(abs(true_slope), 0.01 * size):
            raise ValueError(_too_inexact("loss", true_slope, slope, tolerance))
        error = abs(claimed - true_change) / abs(true_change)
        if not error <= tolerance:
            raise ValueError(_too_inexact("objective", true_change, claimed, tolerance))
        return error


def step_length(tensor: Tensor) -> float:
    """The step of central differences relative to the parameters' norm, by dtype.

    It is the square root of the precision, shorter than the usual cube root, because normalization
    layers have a large curvature and a short step crosses fewer kinks of activations.
    ``benchmarks/several_processes/differences.py`` measures the errors.
    """
    return float(torch.finfo(tensor.dtype).eps ** 0.5)


class _Gradients:
    """The sub-batch gradients at a point, with the objective, the loss and the directions."""

    def __init__(self, point: Point, batch: Batch, plan: Plan, objective: Objective) -> None:
        self.problem, self.count = point.problem, len(plan.weights)
        ranks, names = self.problem.ranks, self.problem.differentiated
        self.share = share_of(plan, ranks.rank, ranks.world)
        collector = AllGradients(self.problem, self.count, self.share)
        losses: list[Tensor] = []
        own = self.share.plan
        with point.session() as session:
            rows = list(sub_batch_gradients(session, batch, own, names, losses))
        self.gradients = torch.stack(rows) if rows else torch.zeros(0, 1)
        if rows:
            collector.add(self.gradients)
        self.evaluated = collector.evaluate(objective, losses)
        total = (own.weights @ self.evaluated.losses).sum()
        self.loss = float(ranks.sum(total)) / self.count

    def loss_by_scales(self) -> Tensor:
        """The derivative of the loss by the scales."""
        found = torch.zeros_like(self.problem.unit_scales)
        if len(self.gradients):
            found = self.problem.by_scales(self.gradients.sum(0))
        return self.problem.ranks.sum(found) / self.count


def _gradient_at(point: Point, batch: Batch, plan: Plan, step: Tensor) -> Tensor:
    """The gradient of a plan's one sub-batch at ``theta + step``."""
    names = point.problem.differentiated
    steps = dict(zip(names, unflatten(step, point.tensors(names)), strict=True))
    with point.moved(steps).session() as session:
        (gradient,) = sub_batch_gradients(session, batch, plan, names)
    return gradient


def _log_norm_and_cosine(moments: Moments) -> Tensor:
    return moments.norm.log() + moments.cosine


def _fourth_order(values: dict[float, float], h: float) -> float:
    """The derivative at 0 from values at ``-2h, -h, h, 2h``."""
    fine = (values[h] - values[-h]) / (2 * h)
    coarse = (values[2 * h] - values[-2 * h]) / (4 * h)
    return (4 * fine - coarse) / 3


def _too_inexact(what: str, true: float, claimed: float, tolerance: float) -> str:
    return (
        f"`engine = 'differences'` is too inexact for this model: in one direction the {what} "
        f"changes by {true:.6g}, and its derivative is {claimed:.6g}. A relative error above "
        f"{tolerance:g} is not usable. Usual causes are ReLU together with BatchNorm, half "
        "precision, a loss that stops gradients by `.detach()` or `torch.no_grad()`, and parallel "
        "layers whose gradients torch does not sum over the ranks. Use an "
        "exact engine; optimize a sharded model before it is sharded."
    )
