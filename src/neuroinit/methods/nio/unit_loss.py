"""The loss ``L_0`` of a network whose parameters are near zero, used by ``gamma="auto"``."""

from __future__ import annotations

import math

from neuroinit.common.batches import Batch
from neuroinit.model.finite import check_finite
from neuroinit.model.problem import Problem

NEARLY_ZERO = (1e-8, 1e-2)  # factors of all parameters; the second if the first is too small
LEAST_LOSS = 1e-7  # a smaller loss counts as zero


def unit_loss(problem: Problem, batch: Batch, weights_only: bool) -> float:
    """The loss with parameters near zero; if it is zero, that at the start, with a warning.

    Args:
        problem: The model and its loss.
        batch: A prepared batch.
        weights_only: Keep tensors with fewer than two dimensions, such as biases and gains.

    Raises:
        NonFiniteError: If it is not finite.
        ValueError: If the loss at the start is zero, too, or not finite.
    """
    loss = _near_zero(problem, batch, weights_only)
    check_finite(loss, "The loss with parameters near zero")
    if loss > LEAST_LOSS:
        return loss
    loss = _own_loss(problem, batch)
    problem.warn_once(
        "The loss is zero for a network whose output is zero, so `gamma = 'auto'` takes "
        f"the bound from the model's own loss, {loss:.3g}. Pass a number to choose it."
    )
    return loss


def _near_zero(problem: Problem, batch: Batch, weights_only: bool) -> float:
    """The loss if all parameters, or all weights, are nearly zero.

    At exactly zero, normalized weights and outputs are not defined. A zero *output* would be wrong
    for models that end in a softmax, a sigmoid or a variance.
    """
    found = math.nan
    for factor in NEARLY_ZERO:
        small = {
            n: factor * t for n, t in problem.start.items() if t.dim() >= 2 or not weights_only
        }
        point = problem.at(problem.unit_scales, small)
        with point.session() as session:
            found = session.loss_value(batch)
        if math.isfinite(found):
            break
    return found


def _own_loss(problem: Problem, batch: Batch) -> float:
    """The absolute value of the loss at the start.

    Raises:
        ValueError: If it is zero or not finite.
    """
    with problem.at(problem.unit_scales).session() as session:
        loss = abs(session.loss_value(batch))
    if not LEAST_LOSS < loss < math.inf:
        raise ValueError(
            f"`gamma = 'auto'` takes the bound from the loss, which is 0 with parameters near zero "
            f"and {loss} with the model's initial ones. Pass a number, for example `gamma=1.0`."
        )
    return loss
