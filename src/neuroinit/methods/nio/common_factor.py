"""The default rule: leave a working network alone, else find one factor for all its weights."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_number
from neuroinit.common.errors import NonFiniteError
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan
from neuroinit.gradients.statistics.sensitivity import Sensitivity, sensitivity
from neuroinit.methods.base import Step
from neuroinit.methods.nio.rules import Rule, measured_step
from neuroinit.methods.updates import Position, State
from neuroinit.model.finite import why_not_finite
from neuroinit.model.problem import Problem

if TYPE_CHECKING:
    from neuroinit.methods.nio.method import NIO

FURTHEST = math.log(100.0)  # a network that needs a larger factor, or a smaller one, is left alone
PRECISION = 1 / 8  # of the logarithm of the factor, in units of `lr`
UNDECIDED = 2.0  # value of `sign` before the first step
TINY = 1e-300  # smallest argument of a logarithm
WORKS = "the network works and is left alone"
FOUND = "all weights times"
NO_FACTOR = "no factor between 1/100 and 100 helps, the network is left alone"


@dataclass(frozen=True)
class CommonFactor(Rule):
    """The default: a network that works is left alone; another one gets one factor for all weights.

    Let ``L`` be the loss, ``L_0`` the loss with weights near zero, and

        s = max_k ||W_k|| ||g_k|| / L_0

    the *sensitivity*: to first order, moving one weight tensor by its own norm changes the loss by
    at most ``s L_0``. On the first batch the network

    - *explodes* if the loss or a gradient is not finite, if ``L > explodes L_0``, or, with an
      optimizer, if to first order its first step decreases the loss by more than ``promise L_0``:
      ``rate ||g||^2`` for SGD, ``rate sum|g|`` for Adam. All weights are then divided by the
      smallest factor with which it does not explode and ``s <= target``.
    - is *dead* if ``s < dead``: the loss hardly depends on any weight. All weights are then
      multiplied by the smallest factor with ``s >= target``.
    - *works* otherwise, and nothing changes.

    The factor is found by steps of ``lr`` in its logarithm and by bisection, one batch per step. If
    there is none between 1/100 and 100, nothing changes. If steps or batches run out first, the
    best factor that was tried is used, which may be 1. Biases, gains and other tensors with one
    dimension are never changed, nor are weights whose gradient is zero on the first batch, such as
    those before dead ReLUs. Only first-order gradients are needed.

    The four numbers do not depend on the number of classes. They were chosen on one half of the
    networks of a suite and tried on the other (``docs/evidence/defaults.md``).

    Args:
        dead: A network with a smaller ``s`` is dead. Networks that train have an ``s`` of 0.1 and
            more, those with vanishing signals 0.03 and less.
        explodes: A network with a loss above this multiple of ``L_0`` explodes.
        promise: A network explodes if, to first order, the first step decreases the loss by more
            than this, in units of ``L_0``. Because the gradient falls during a step, training
            tolerates more than 1; above about 10 it diverges.
        target: The sensitivity ``s`` for which the factor is chosen. At 1, moving a weight tensor
            by its own norm changes the loss by about ``L_0``.

    Example:
        >>> from neuroinit import NIO
        >>> NIO().rule == CommonFactor()
        True
        >>> NIO(rule=CommonFactor(promise=5.0)).rule.promise
        5.0
    """

    dead: float = 0.1
    explodes: float = 2.0
    promise: float = 10.0
    target: float = 1.0

    second_order: ClassVar[bool] = False
    bounds_norm: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("dead", self.dead, 0.0)
        check_number("explodes", self.explodes, 1.0)
        check_number("promise", self.promise, 0.0)
        check_number("target", self.target, 0.0)

    def init(self, scales: Tensor) -> State:
        """The state before the first step.

        ``sign``: 1 while weights grow, -1 while they shrink, 0 when the search has ended.
        ``factor``: the logarithm of the factor. ``low`` and ``high``: the last logarithm that was
        too close to 0, and the first that was far enough from 0; ``nan`` if unknown. ``best``: the
        logarithm with the smallest ``badness``. ``used``: which tensors get the factor.
        """
        state = {"sign": UNDECIDED, "factor": 0.0, "low": 0.0, "high": math.nan}
        state |= {"best": 0.0, "badness": math.inf}
        return {**{k: scales.new_tensor(v) for k, v in state.items()}, "used": scales * 0}

    def step(
        self,
        nio: NIO,
        problem: Problem,
        batch: Batch,
        plan: Plan,
        engine: Engine,
        position: Position,
    ) -> Step:
        """One step of the search; no engine is needed, since nothing is differentiated twice."""
        measured, failure = None, None
        try:
            measured = sensitivity(problem.at(position.scales), batch, plan)
        except NonFiniteError as error:
            if why_not_finite(batch):
                raise
            failure = error
        weights = torch.tensor([problem.start[n].dim() >= 2 for n in problem.scaled], device="cpu")
        promised, unit = _promised(nio, measured), float(nio.gamma)
        scales, state = self.move(position, measured, weights, unit, promised, nio.lr)
        if failure is not None and not state["factor"]:  # no factor helps
            raise failure
        done = self.verdict(state)
        if measured is None:
            return Step(scales, state, constrained=True, done=done)
        value = float((measured.by_tensor * weights).max()) / unit
        constrained = self.exploding(measured, unit, promised)
        taken = measured_step(scales, state, constrained, measured.loss, measured.moments, value)
        return dataclasses.replace(taken, done=done)

    def exploding(self, measured: Sensitivity | None, unit: float, promised: float) -> bool:
        """Whether the network explodes; ``measured`` is ``None`` if something is not finite."""
        if measured is None:
            return True
        return measured.loss - unit > (self.explodes - 1) * unit or promised > self.promise * unit

    def move(
        self,
        position: Position,
        measured: Sensitivity | None,
        weights: Tensor,
        unit: float,
        promised: float,
        lr: float,
    ) -> tuple[Tensor, State]:
        """One step of the search.

        Args:
            position: The scales and the state.
            measured: The sensitivity at the position; ``None`` if something is not finite.
            weights: Which tensors are weights.
            unit: ``L_0``.
            promised: By how much a step of the optimizer decreases the loss to first order.
            lr: Longest step of the logarithm of the factor.
        """
        state = dict(position.state)
        explodes = self.exploding(measured, unit, promised)
        share = math.inf if measured is None else float((measured.by_tensor * weights).max()) / unit
        sign, at = float(state["sign"]), float(state["factor"])
        low, high = float(state["low"]), float(state["high"])
        found = self._better(state, self.badness(measured, share, unit, promised))
        if sign == UNDECIDED:
            sign = (-1.0 if explodes else float(share < self.dead)) * float(weights.any())
            used = weights if measured is None else weights & (measured.norms > 0)
            state["used"] = used.to(position.scales)
        elif sign and self._far_enough(sign, share, explodes):
            high = at
        else:
            low = at
        if sign:
            at = at + sign * lr if math.isnan(high) else (low + high) / 2
            if abs(low - high) <= PRECISION * lr:
                at, sign = high, 0.0
            elif abs(at) > FURTHEST:
                at, sign = 0.0, 0.0
        found |= {"sign": sign, "factor": at, "low": low, "high": high}
        state |= {k: position.scales.new_tensor(v) for k, v in found.items()}
        return (at * state["used"]).exp(), state

    def badness(
        self, measured: Sensitivity | None, share: float, unit: float, promised: float
    ) -> float:
        """How far a network is from the target, in logarithms; 0 at the target."""
        if measured is None:
            return math.inf
        excess = measured.loss / (self.explodes * unit), promised / (self.promise * unit)
        away = abs(math.log(max(share, TINY) / self.target))
        return max(away, *(math.log(max(ratio, TINY)) for ratio in excess))

    def final_scales(self, scales: Tensor, state: State) -> Tensor:
        """The scales after the last step: a search that has not ended gives its best factor."""
        if not state["sign"]:
            return scales
        at = state["best"] if math.isnan(float(state["high"])) else state["high"]
        return (at * state["used"]).exp()

    def verdict(self, state: State) -> str:
        """The result of the search in a few words; empty while it goes on."""
        if state["sign"]:
            return ""
        if not math.isnan(float(state["high"])):
            return f"{FOUND} {math.exp(float(state['factor'])):.3g}"
        if state["low"]:
            return NO_FACTOR
        return WORKS

    def _better(self, state: State, badness: float) -> dict[str, float]:
        """The best factor that was tried, this one included."""
        if badness < float(state["badness"]):
            return {"best": float(state["factor"]), "badness": badness}
        return {"best": float(state["best"]), "badness": float(state["badness"])}

    def _far_enough(self, sign: float, share: float, explodes: bool) -> bool:
        if sign > 0:
            return share >= self.target or explodes
        return share <= self.target and not explodes


def _promised(nio: NIO, measured: Sensitivity | None) -> float:
    """By how much the loss decreases in a step of the optimizer, to first order."""
    if measured is None or nio.rate is None:
        return 0.0
    return nio.rate * (measured.squared if nio.family == "sgd" else measured.absolute)
