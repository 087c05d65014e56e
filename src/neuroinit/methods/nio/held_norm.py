"""The rule for a given bound: bring the gradient norm to ``gamma``, and hold it there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroinit.common.checks import check_callable, check_number
from neuroinit.gradients.measures import Moments
from neuroinit.methods.nio.objectives import Measure, cosine
from neuroinit.methods.nio.rules import DerivativeRule
from neuroinit.methods.updates import Position, State

# If sum_k |u_k| is smaller, the norm has reached its lower limit: the gradient of the last bias,
# which does not depend on the scales. Shrinking further would only make the network dead.
FLOOR = 0.5


@dataclass(frozen=True)
class HeldNorm(DerivativeRule):
    """The rule of ``NIO(gamma=...)``: bring the mean gradient norm to ``gamma``.

    All steps change ``log w``. With ``u_k`` the derivative of the log-norm by ``log w_k``, and no
    step longer than ``lr``:

    - *shrink*: if the norm of the model as it is exceeds ``shrink_above`` times ``gamma``, all
      tensors are multiplied by the same factors until the norm is ``shrink_to`` times ``gamma``. At
      ``gamma`` itself the branches of a residual network are still too large.
    - *hold*: above ``gamma``, the tensors with ``u_k`` above a share of the largest shrink by equal
      steps. Below ``gamma`` they grow, together with tensors whose ``u_k`` is still small, so that
      the last layer does not reach ``gamma`` alone. Tensors with ``u_k`` below minus that share
      shrink. If a step crosses ``gamma`` by more than a factor of e, the longest step is halved, so
      that the norm of a deep network does not oscillate.
    - *ascend*: near ``gamma``, small and decaying steps increase the objective. Off by default:
      raising GradCosine made a Post-LN transformer ignore its input, and gained nothing significant
      elsewhere (``docs/evidence/trainability.md``).

    Nothing shrinks any more once the norm no longer depends on the scales: the bound is then below
    the gradient of the last bias. Nothing grows while the loss is above ``loss_within`` times the
    least loss so far.

    Args:
        objective: What an ascent step increases.
        shrink_above: Shrink if the norm is above this multiple of ``gamma`` at the first step.
        shrink_to: The norm at which shrinking ends, as a multiple of ``gamma``.
        band: No step is taken if the log-norm is this close to ``log(gamma)``.
        miss: Crossing ``gamma`` by more than this, in the log-norm, halves the longest step.
        share: Share of the largest ``u_k`` above which a tensor is moved.
        grow: Below ``gamma``, tensors with a small ``u_k`` grow, too.
        loss_within: Nothing grows while the loss is above this multiple of the least loss so far.
        ascent: Length of an ascent step, as a fraction of ``lr``; it decays to zero.
        gram: The objective reads ``moments.gram``.

    Example:
        >>> from neuroinit import NIO
        >>> NIO(gamma=2.0).rule == HeldNorm()
        True
        >>> NIO(gamma=2.0, rule=HeldNorm(grow=False)).rule.grow
        False
    """

    objective: Measure = cosine
    shrink_above: float = 5.0
    shrink_to: float = 0.3
    band: float = 0.2
    miss: float = 1.0
    share: float = 0.2
    grow: bool = True
    loss_within: float = 1.2
    ascent: float = 0.0
    gram: bool = False

    def __post_init__(self) -> None:
        check_callable("objective", self.objective)
        check_number("shrink_above", self.shrink_above, 1.0)
        check_number("shrink_to", self.shrink_to, 0.0, 1.0)
        check_number("band", self.band, 0.0)
        check_number("miss", self.miss, 0.0)
        check_number("share", self.share, 0.0, 1.0, closed=True)
        check_number("loss_within", self.loss_within, 1.0)
        check_number("ascent", self.ascent, 0.0, closed=True)

    def init(self, scales: Tensor) -> State:
        """The state before the first step.

        ``shrinking``: 1 or 0, or -1 if not decided yet. ``side``: on which side of ``gamma`` the
        norm was at the last holding step. ``reach``: the fraction of ``lr`` that a holding step may
        take. ``loss``: the least loss so far. ``used``: which tensors have had a derivative; the
        others keep their values.
        """
        return {
            "shrinking": scales.new_tensor(-1.0),
            "used": torch.zeros_like(scales),
            "side": scales.new_tensor(0.0),
            "reach": scales.new_tensor(1.0),
            "loss": scales.new_tensor(math.inf),
        }

    def descended(self, position: Position, moments: Moments, gamma: float) -> Tensor:
        """The logarithm of the norm, or minus the objective near ``gamma``."""
        if self._shrinking(position, moments, gamma) or self._off(moments, gamma):
            return moments.norm.log()
        return -self.objective(moments)

    def constrained(self, moments: Moments, gamma: float) -> bool:
        """Whether the mean norm is above ``gamma``."""
        return bool(moments.norm.detach() > gamma)

    def move(
        self, position: Position, gradient: Tensor, moments: Moments, gamma: float, lr: float
    ) -> tuple[Tensor, State]:
        """One step: shrink, hold or ascend."""
        u = gradient * position.scales
        shrinking = self._shrinking(position, moments, gamma) and not _at_floor(u)
        found = {"shrinking": float(shrinking), "loss": self._least_loss(position)}
        state = position.state | {k: position.scales.new_tensor(v) for k, v in found.items()}
        if shrinking:
            step = self._shrink(u, float(moments.norm), gamma, lr)
        elif self._off(moments, gamma):
            step, state = self._hold(position, u, state, float(moments.norm), gamma, lr)
        else:
            length = self.ascent * lr * (1 - position.progress)
            step = -length * u / u.abs().max().clamp_min(1e-12)
        state["used"] = torch.where(u != 0, 1.0, position.state["used"])
        return torch.where(state["used"] > 0, position.scales * step.exp(), 1.0), state

    def _shrink(self, u: Tensor, norm: float, gamma: float, lr: float) -> Tensor:
        """The same step for all tensors, a little further than to ``shrink_to * gamma``."""
        wanted = math.log(norm / (self.shrink_to * gamma)) + 0.5
        return -torch.ones_like(u) * min(lr, wanted / max(float(u.sum()), 1e-6))

    def _hold(
        self, position: Position, u: Tensor, state: State, norm: float, gamma: float, lr: float
    ) -> tuple[Tensor, State]:
        """A step of the log-norm to ``log(gamma)``, to first order, and the new state."""
        off = math.log(norm / gamma)
        missed = off * float(state["side"]) < 0 and abs(off) > self.miss
        reach = state["reach"] / (2 if missed else 1)
        towards = self._falling(u) if norm > gamma else self._rising(u)
        length, longest = -off / max(float((u * towards).sum()), 1e-6), lr * float(reach)
        risen = self._loss_has_risen(position, float(state["loss"]))
        stays = _at_floor(u) if norm > gamma else risen
        step = towards * (0.0 if stays else max(-longest, min(longest, length)))
        side = reach.new_tensor(math.copysign(1.0, off))
        return step, {**state, "side": side, "reach": reach}

    def retreat(self, position: Position, lr: float) -> Tensor | None:
        """All scales times ``exp(-lr)``; ``None`` if an earlier step has found finite gradients."""
        return position.scales * math.exp(-lr) if position.state["shrinking"] != 0 else None

    def _least_loss(self, position: Position) -> float:
        return min(position.loss, float(position.state["loss"]))

    def _loss_has_risen(self, position: Position, least: float) -> bool:
        """Whether the loss is well above the least loss so far."""
        return position.loss - least > (self.loss_within - 1) * abs(least)

    def _falling(self, u: Tensor) -> Tensor:
        """1 for tensors that shrink to lower the norm; if there is none, the signs of ``u``."""
        falling = (u > self.share * u.abs().max()).to(u)
        return falling if falling.any() else self._signs(u)

    def _rising(self, u: Tensor) -> Tensor:
        """1 for tensors that grow to raise the norm, -1 for those that shrink, 0 for others."""
        signs = self._signs(u)
        idle = (signs == 0) & (u != 0)  # zero: not in use
        rising = torch.where(idle, 1.0, signs) if self.grow else signs
        return rising if (u * rising).sum() > 0 else signs

    def _signs(self, u: Tensor) -> Tensor:
        return torch.where(u.abs() > self.share * u.abs().max(), u.sign(), 0.0)

    def _off(self, moments: Moments, gamma: float) -> bool:
        return abs(math.log(float(moments.norm.detach()) / gamma)) >= self.band

    def _shrinking(self, position: Position, moments: Moments, gamma: float) -> bool:
        """Whether the network is shrunk as a whole.

        The first step decides. Shrinking ends when the norm is low, or after half the steps.
        """
        norm, before = float(moments.norm.detach()), float(position.state["shrinking"])
        begun = norm > self.shrink_above * gamma if before < 0 else before > 0
        return begun and norm > self.shrink_to * gamma and position.progress < 0.5


def _at_floor(u: Tensor) -> bool:
    return float(u.abs().sum()) < FLOOR
