"""Ideas that are tried in place of what NIO() does.

The rules are without one of its pieces; the methods look at every tensor by itself, by plain
autograd.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import neuroinit as ni
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.measures import cosines
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Step
from neuroinit.methods.rules import HeldNorm
from neuroinit.methods.updates import Position
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem


@dataclass(frozen=True)
class ClampedBiases(HeldNorm):
    """Biases start at the clamp, as in the default of November 2026."""

    def step(
        self,
        nio: ni.NIO,
        problem: Problem,
        batch: Any,
        plan: Plan,
        engine: Engine,
        position: Position,
    ) -> Step:
        """The first step begins with biases at the clamp."""
        if position.progress == 0:
            lowest = nio.lowest(problem.scaled)
            bias = [n.rpartition(".")[2].startswith("bias") for n in problem.scaled]
            scales = torch.where(torch.tensor(bias, device="cpu"), lowest, position.scales)
            position = dataclasses.replace(position, scales=scales)
        return super().step(nio, problem, batch, plan, engine, position)


@dataclass(frozen=True)
class EitherWay(ClampedBiases):
    """A norm is lowered by growing, too, where that lowers it."""

    def _falling(self, u: Tensor) -> Tensor:
        return self._signs(u)


@dataclass(frozen=True, kw_only=True)
class PerTensorCosine(ni.NIO):
    """Where NIO() raises GradCosine, this raises the mean of the tensors' own."""

    def step(
        self, problem: Problem, batch: Any, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """NIO's step, but for the ascent."""
        taken = super().step(problem, batch, plan, engine, position)
        if not self._near(taken):
            return taken
        point = problem.at(position.scales)
        with torch.enable_grad():
            moved = self._moved(point, _grams(point, batch, plan), position)
        return dataclasses.replace(taken, scales=position.scales * moved.exp())

    def _near(self, taken: Step) -> bool:
        assert isinstance(self.rule, HeldNorm)
        off = abs(math.log(taken.norm / float(self.gamma)))
        return off < self.rule.band and not taken.state["shrinking"]

    def _moved(self, point: Point, grams: dict[str, Tensor], position: Position) -> Tensor:
        """The step in log space, from every tensor's Gram matrix."""
        assert isinstance(self.rule, HeldNorm)
        used = [gram for gram in grams.values() if float(gram.detach().trace()) > 0]
        mean = torch.stack([cosines(gram).mean() for gram in used]).mean()
        theta = point.tensors(point.problem.scaled)
        by_theta = torch.autograd.grad(mean, theta, allow_unused=True, materialize_grads=True)
        pairs = zip(by_theta, theta, strict=True)
        u = torch.stack([(g * t).detach().sum() for g, t in pairs]).to(position.scales)
        length = self.rule.ascent * self.lr * (1 - position.progress)
        return length * u / u.abs().max().clamp_min(1e-12)


@dataclass(frozen=True, kw_only=True)
class PerTensorNorm(PerTensorCosine):
    """Where NIO() raises GradCosine, this makes the gradient norms of all weights alike.

    A weight that is enlarged has a smaller gradient beside the others, so those with a large one
    grow and the others shrink, by half of what is missing in log space.
    """

    def _moved(self, point: Point, grams: dict[str, Tensor], position: Position) -> Tensor:
        problem = point.problem
        norms = torch.stack([grams[n].detach().diagonal().sqrt().mean() for n in problem.scaled])
        weight = torch.tensor([problem.start[n].dim() > 1 for n in problem.scaled]) & (norms > 0)
        logs = norms.to(position.scales).clamp_min(1e-30).log()
        off = torch.where(weight, logs - logs[weight].mean(), 0.0)
        return (off / 2).clamp(-self.lr, self.lr)


def _grams(point: Point, batch: Any, plan: Plan) -> dict[str, Tensor]:
    """Every tensor's products of sub-batch gradients, differentiable."""
    names = point.problem.differentiated
    with point.session(second_order=True) as session:
        rows = [
            torch.autograd.grad(loss, point.tensors(names), create_graph=True, allow_unused=True)
            for loss in session.losses(batch, plan.pieces, plan.one_forward)
        ]
    found = {}
    for k, name in enumerate(names):
        stacked = torch.stack([torch.zeros(1) if r[k] is None else r[k].flatten() for r in rows])
        found[name] = stacked.double() @ stacked.double().T
    return found
