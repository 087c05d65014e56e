"""The derivative by central differences of gradients, for models that admit nothing else.

    H_d v_d  is about  ( g_d(theta + h v_d) - g_d(theta - h v_d) ) / 2h,

by first-order passes alone. It is never chosen by itself: it is good on smooth networks, poor where
there are kinks, and useless on ReLU with BatchNorm, which :func:`check_differences` finds out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroinit.common.tensors import flatten, narrow, unflatten
from neuroinit.gradients.backward import check_derivative
from neuroinit.gradients.derivative import Derivative, sub_batch_gradients
from neuroinit.gradients.directions import AllGradients, Objective
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.plan import Plan, Share, only, share
from neuroinit.model.problem import Problem

TOLERANCE = 0.1  # of a directional derivative, relative to the truth


def differences(problem: Problem, batch: Any, plan: Plan, objective: Objective) -> Derivative:
    """An objective of the sub-batch gradients, and about its derivative by the scales.

    Args:
        problem: Where the scales were set by ``problem.place``; it may be sharded.
        batch: A prepared batch.
        plan: Its pieces.
        objective: Function of :class:`Moments`.
    """
    with problem.ranks.together():
        at = _At(problem, batch, plan, objective)
        by_scale = torch.zeros_like(problem.unit_scales)
        theta = flatten(problem.theta(problem.differentiated))
        for d, gradient in enumerate(at.rows):
            v = at.collector.direction(d, gradient)
            length = float(problem.norm(v))
            if length > 0:
                h = step_length(v) * float(problem.norm(theta)) / length
                row = only(at.share.plan, d)
                ahead, behind = (_moved_gradient(problem, batch, row, x * v) for x in (h, -h))
                by_scale += problem.by_scales(ahead - behind) / (2 * h)
        by_scale = check_derivative(problem, problem.ranks.sum(by_scale))
        return Derivative(at.value, by_scale, at.collector.moments, at.loss)


def step_length(tensor: Tensor) -> float:
    """Of central differences, as a share of the whole.

    Shorter than the usual cube root: normalization layers bend a lot, and a short step meets few
    kinks. ``benchmarks/differences.py`` has the errors.
    """
    return float(torch.finfo(tensor.dtype).eps ** 0.5)


class _At:
    """What first-order passes find at the placed scales: objective, loss, and gradients."""

    def __init__(self, problem: Problem, batch: Any, plan: Plan, objective: Objective) -> None:
        self.problem, self.count = problem, len(plan.weights)
        self.share: Share = share(plan, problem.ranks.rank, problem.ranks.world)
        self.collector = AllGradients(problem, self.count, self.share)
        losses: list[Tensor] = []
        own = self.share.plan
        with problem.session():
            self.rows = [g for _, g in sub_batch_gradients(problem, batch, own, losses)]
        for gradient in self.rows:
            self.collector.add(gradient)
        self.value = float(self.collector.close(objective))
        total = torch.zeros((), dtype=torch.float64, device="cpu")
        if losses:
            total = (own.weights @ narrow(torch.stack(losses))).sum()
        self.loss = float(problem.ranks.sum(total)) / self.count

    def slopes(self) -> Tensor:
        """The derivative of the loss by the scales."""
        found = torch.zeros_like(self.problem.unit_scales)
        for gradient in self.rows:
            found += self.problem.by_scales(gradient)
        return self.problem.ranks.sum(found) / self.count


def _moved_gradient(problem: Problem, batch: Any, plan: Plan, step: Tensor) -> Tensor:
    """The gradient of a plan's one sub-batch at ``theta + step``."""
    names = problem.differentiated
    steps = dict(zip(names, unflatten(step, problem.theta(names)), strict=True))
    with problem.moved(steps), problem.session():
        ((_, gradient),) = sub_batch_gradients(problem, batch, plan)
    return gradient


def _log_norm_and_cosine(moments: Moments) -> Tensor:
    return moments.norm.log() + moments.cosine


def check_differences(problem: Problem, batch: Any, plan: Plan, scales: Tensor) -> float:
    """Compare derivatives with the change of what they are derivatives of.

    In the direction of the derivative of ``log GN + GC`` by ``log w``, the change of that objective
    needs no second derivative and that of the loss no first one, so both are the truth, to the
    accuracy of central differences of two lengths.

    Returns:
        The relative error of the objective's derivative.

    Raises:
        ValueError: If an error is above :data:`TOLERANCE`.
    """
    problem.place(scales)
    objective = _log_norm_and_cosine
    found = differences(problem, batch, plan, objective).gradient * scales
    direction = found / found.norm()
    with problem.ranks.together():
        slope = float(_At(problem, batch, plan, objective).slopes() @ (scales * direction))
        h = step_length(problem.start[problem.scaled[0]])
        points = {}
        for step in (2 * h, h, -h, -2 * h):
            problem.place(scales * torch.exp(step * direction))
            points[step] = _At(problem, batch, plan, objective)
    problem.place(scales)
    claims = {"objective": float(found.norm()), "loss": slope}
    truths = {
        "objective": _slope({x: at.value for x, at in points.items()}, h),
        "loss": _slope({x: at.loss for x, at in points.items()}, h),
    }
    size = max(1.0, abs(points[h].loss))  # a loss that hardly changes has no slope to speak of
    error = abs(claims["objective"] - truths["objective"]) / abs(truths["objective"])
    wrong_loss = abs(slope - truths["loss"]) > TOLERANCE * max(abs(truths["loss"]), 0.01 * size)
    if wrong_loss or not error <= TOLERANCE:
        what = "loss" if wrong_loss else "objective"
        raise ValueError(
            f"`engine = 'differences'` is too inexact for this model: in one direction the {what} "
            f"changes by {truths[what]:.4g}, and its derivative is {claims[what]:.4g}. More than "
            f"{TOLERANCE:.0%} apart is not usable; ReLU together with BatchNorm, or half precision,"
            " are the usual cause. Optimize the model before it is sharded, with an exact engine."
        )
    return error


def _slope(values: dict[float, float], h: float) -> float:
    """The derivative at 0 from values at ``-2h, -h, h, 2h``, to fourth order."""
    fine = (values[h] - values[-h]) / (2 * h)
    coarse = (values[2 * h] - values[-2 * h]) / (4 * h)
    return (4 * fine - coarse) / 3
