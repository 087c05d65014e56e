"""How NIO moves the scales: the paper's bounded ascent, and ours, which holds the norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from neuroinit.common.checks import check_callable, check_number
from neuroinit.gradients.measures import Moments
from neuroinit.methods.updates import Position, State, TwoMomentAdam, Update, check_update

Measure = Callable[[Moments], Tensor]

# A norm that all scales together move by less than this share of their own steps has reached its
# floor, the gradient of the last bias, which never vanishes: shrinking on would only kill the
# network.
FLOOR = 0.5


def cosine(moments: Moments) -> Tensor:
    """``GC``, GradCosine."""
    return moments.cosine


def cosine_and_norm(moments: Moments) -> Tensor:
    """``GC + GN``, the objective of Eq. 9."""
    return moments.cosine + moments.norm


def distinct_cosine_and_sum(moments: Moments) -> Tensor:
    """Cosine of the pairs ``i != j`` plus the *sum* of the norms: the authors' released code."""
    return moments.distinct_cosine + moments.norms.sum()


def largest_norm(moments: Moments) -> Tensor:
    """What the paper bounds (Alg. 3, line 5)."""
    return moments.norms.max()


def mean_norm(moments: Moments) -> Tensor:
    """What the authors' released code bounds."""
    return moments.norm


def low_variance(moments: Moments) -> Tensor:
    """Minus the gradient variance, which the paper argues against (Sec. 6.3); reads the Gram."""
    return -moments.variance


def low_variance_and_norm(moments: Moments) -> Tensor:
    """Minus the gradient variance, plus GN; reads the Gram matrix."""
    return moments.norm - moments.variance


@runtime_checkable
class Rule(Protocol):
    """What a step descends, and how its derivative moves the scales.

    ``gamma`` is the bound of the method, ``lr`` its step size, and the state a dict of tensors.
    """

    @property
    def gram(self) -> bool:
        """Whether ``moments.gram`` is read."""
        ...

    def start(self, names: list[str], lowest: Tensor) -> Tensor:
        """The scales before the first step."""
        ...

    def init(self, scales: Tensor) -> State:
        """The state before the first step."""
        ...

    def descended(self, position: Position, moments: Moments, gamma: float) -> Tensor:
        """The scalar whose derivative by the scales is taken."""
        ...

    def constrained(self, moments: Moments, gamma: float) -> bool:
        """Whether the bound is exceeded."""
        ...

    def move(
        self, position: Position, gradient: Tensor, moments: Moments, gamma: float, lr: float
    ) -> tuple[Tensor, State]:
        """The scales after the step, and the new state."""
        ...

    def retreat(self, position: Position, lr: float) -> Tensor | None:
        """Smaller scales to try where nothing is finite; ``None`` to give up."""
        ...


@dataclass(frozen=True)
class BoundedAscent:
    """Alg. 3: ascend an objective; while a bound is exceeded, descend the mean norm instead.

    Args:
        objective: What is maximized.
        bounded: What ``gamma`` bounds.
        update: How a gradient moves the scales.
        gram: The objective reads ``moments.gram``.
    """

    objective: Measure = cosine_and_norm
    bounded: Measure = largest_norm
    update: Update = field(default_factory=TwoMomentAdam)
    gram: bool = False

    def __post_init__(self) -> None:
        check_callable("objective", self.objective)
        check_callable("bounded", self.bounded)
        check_update(self.update)

    def start(self, names: list[str], lowest: Tensor) -> Tensor:
        """All ones."""
        return torch.ones_like(lowest)

    def init(self, scales: Tensor) -> State:
        """The update's state."""
        return self.update.init(scales)

    def descended(self, position: Position, moments: Moments, gamma: float) -> Tensor:
        """The norm above the bound, minus the objective below it."""
        if self.constrained(moments, gamma):
            return moments.norm
        return -self.objective(moments)

    def constrained(self, moments: Moments, gamma: float) -> bool:
        """Whether the bound is exceeded."""
        return bool(self.bounded(moments) > gamma)

    def move(
        self, position: Position, gradient: Tensor, moments: Moments, gamma: float, lr: float
    ) -> tuple[Tensor, State]:
        """One step of the update."""
        constrained = self.constrained(moments, gamma)
        return self.update.step(position.scales, gradient, lr, constrained, position.state)

    def retreat(self, position: Position, lr: float) -> Tensor | None:
        """The paper has no answer to a start that is not finite."""
        return None


@dataclass(frozen=True)
class HeldNorm:
    """Ours: bring the mean norm to ``gamma`` in balanced steps, then raise the cosine there.

    All steps are in ``log w``, where ``u`` is the derivative, and none is longer than ``lr``:

    - *shrink*: a start whose norm explodes is shrunk, all tensors alike, until its norm is well
      below ``gamma``. At ``gamma`` itself the branches of a residual network are still too large.
    - *hold*: above ``gamma``, the tensors that matter (``u_k`` above a share of the largest) shrink
      by equal steps. Below it they grow, and with them every weight that does not matter *yet*: the
      depth of a network whose output is about zero has no derivative, and the last layer alone
      could meet ``gamma``. Tensors that saturate what follows (``u_k`` below minus the share)
      shrink. Whenever a step went past ``gamma`` by more than a factor of e, the longest of these
      steps is halved: the norm of a deep plain network could swing for ever.
    - *ascend*: near ``gamma``, small and decaying steps up the objective.

    Two guards hold a step back. Nothing shrinks once no scale moves the norm any more: the bound is
    then below what the last bias alone contributes, and the outputs would no longer depend on the
    inputs. And nothing grows while the loss is well above the least so far: a network that says
    more, and says it wrong, is no better start.

    Biases start at the clamp, because a network can meet any bound by its biases alone. What each
    part is worth is in ``docs/trainability.md``.

    Args:
        objective: What is maximized once the norm is right.
        shrink_above: Shrink a start whose norm is above this multiple of ``gamma``.
        shrink_to: How far, as a multiple of ``gamma``.
        band: The norm is right if its logarithm is within this distance of ``gamma``'s.
        miss: A step past ``gamma`` by more than this, in the logarithm, halves the longest step.
        share: Which tensors matter.
        grow: Below ``gamma``, weights that do not matter yet grow too.
        loss_within: Nothing grows while the loss is above this multiple of the least so far.
        ascent: Length of an ascent step, as a share of ``lr``; it decays to zero.
        gram: The objective reads ``moments.gram``.
    """

    objective: Measure = cosine
    shrink_above: float = 5.0
    shrink_to: float = 0.3
    band: float = 0.2
    miss: float = 1.0
    share: float = 0.2
    grow: bool = True
    loss_within: float = 1.2
    ascent: float = 0.1
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

    def start(self, names: list[str], lowest: Tensor) -> Tensor:
        """Ones, and the clamp for biases."""
        bias = torch.tensor([n.rpartition(".")[2].startswith("bias") for n in names], device="cpu")
        return torch.where(bias, lowest, torch.ones_like(lowest))

    def init(self, scales: Tensor) -> State:
        """What is remembered.

        Whether the start is being shrunk (1, 0; -1 before that is decided), on which side of the
        bound the norm was held last, how much of ``lr`` a holding step may take, the least loss so
        far, which tensors are weights, and which have had a derivative: others keep their values.
        """
        return {
            "shrinking": scales.new_tensor(-1.0),
            "used": torch.zeros_like(scales),
            "side": scales.new_tensor(0.0),
            "reach": scales.new_tensor(1.0),
            "loss": scales.new_tensor(math.inf),
            "weight": (scales >= 1).to(scales),
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
        scales, norm = position.scales, float(moments.norm)
        u = gradient * scales
        shrinking = self._shrinking(position, moments, gamma)
        floor = float(u.abs().sum()) < FLOOR
        state = {**position.state, "shrinking": scales.new_tensor(float(shrinking and not floor))}
        state["loss"] = scales.new_tensor(min(position.loss, float(position.state["loss"])))
        if shrinking and not floor:
            wanted = math.log(norm / (self.shrink_to * gamma)) + 0.5
            step = -torch.ones_like(u) * min(lr, wanted / max(float(u.sum()), 1e-6))
        elif self._off(moments, gamma):
            off = math.log(norm / gamma)
            missed = off * float(position.state["side"]) < 0 and abs(off) > self.miss
            state["side"] = scales.new_tensor(math.copysign(1.0, off))
            state["reach"] = position.state["reach"] / (2 if missed else 1)
            towards = self._falling(u) if norm > gamma else self._rising(u, position)
            length = -off / max(float((u * towards).sum()), 1e-6)
            longest = lr * float(state["reach"])
            stays = floor if norm > gamma else self._louder(position, float(state["loss"]))
            step = towards * (0.0 if stays else max(-longest, min(longest, length)))
        else:
            length = self.ascent * lr * (1 - position.progress)
            step = -length * u / u.abs().max().clamp_min(1e-12)
        state["used"] = torch.where(u != 0, 1.0, position.state["used"])
        return torch.where(state["used"] > 0, scales * step.exp(), 1.0), state

    def retreat(self, position: Position, lr: float) -> Tensor | None:
        """Shrink blindly; a network that was finite once is not touched this way."""
        return position.scales * math.exp(-lr) if position.state["shrinking"] != 0 else None

    def _louder(self, position: Position, least: float) -> bool:
        return position.loss - least > (self.loss_within - 1) * abs(least)

    def _falling(self, u: Tensor) -> Tensor:
        """Which tensors shrink the norm by shrinking; if none does, those that do by growing."""
        falling = (u > self.share * u.abs().max()).to(u)
        return falling if falling.any() else self._signs(u)

    def _rising(self, u: Tensor, position: Position) -> Tensor:
        """Which tensors grow (1) or shrink (-1) to raise the norm."""
        signs = self._signs(u)
        idle = (signs == 0) & (u != 0) & (position.state["weight"] > 0)  # zero: not in use
        rising = torch.where(idle, 1.0, signs) if self.grow else signs
        return rising if (u * rising).sum() > 0 else signs

    def _signs(self, u: Tensor) -> Tensor:
        return torch.where(u.abs() > self.share * u.abs().max(), u.sign(), 0.0)

    def _off(self, moments: Moments, gamma: float) -> bool:
        return abs(math.log(float(moments.norm.detach()) / gamma)) >= self.band

    def _shrinking(self, position: Position, moments: Moments, gamma: float) -> bool:
        """Decided at the first step; over once the norm is low, or after half the steps."""
        norm, before = float(moments.norm.detach()), float(position.state["shrinking"])
        begun = norm > self.shrink_above * gamma if before < 0 else before > 0
        return begun and norm > self.shrink_to * gamma and position.progress < 0.5
