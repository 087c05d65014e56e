"""Short trainings of copies of a model's parameters, with the user's own optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.model.optimizers import OptimizerLike, twin_of
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem


class Rollout:
    """One candidate's parameters on their way.

    Args:
        problem: The model and its loss.
        values: Where it starts, by name.
        optimizer: As for :func:`twin_of`.
        haste: What its learning rate is multiplied by.
    """

    def __init__(
        self,
        problem: Problem,
        values: dict[str, Tensor],
        optimizer: OptimizerLike,
        haste: float = 1.0,
    ) -> None:
        self.problem = problem
        self.values = {
            n: v.detach().clone().requires_grad_(problem.parameters[n].requires_grad)
            for n, v in values.items()
        }
        self.trained = [v for v in self.values.values() if v.requires_grad]
        self.optimizer = twin_of(optimizer, problem.model, self.values)
        for group in self.optimizer.param_groups:
            if "lr" in group:
                group["lr"] = haste * group["lr"]
        self.losses: list[float] = []

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite; it is not trained on then."""
        return bool(self.losses) and not math.isfinite(self.losses[-1])

    def train(self, batches: Iterator[Any], steps: int) -> None:
        """Some optimizer steps."""
        with self._point.session() as session:
            for _ in range(steps):
                if self.diverged:
                    return
                batch = self.problem.prepare(next(batches))
                seen: list[float] = []

                def closure(batch: Batch = batch, seen: list[float] = seen) -> Tensor:
                    loss = session.loss(batch)
                    found = torch.autograd.grad(loss, self.trained, allow_unused=True)
                    for value, gradient in zip(self.trained, found, strict=True):
                        value.grad = gradient
                    seen.append(loss.item())
                    return loss

                self.optimizer.step(closure)  # type: ignore[arg-type]
                self.losses.append(seen[0])

    def judge(self, batches: Iterable[Batch]) -> list[float]:
        """The loss on every batch; infinite where it is not finite."""
        with self._point.session() as session, torch.no_grad():
            found = [float(session.loss(self.problem.prepare(batch))) for batch in batches]
        return [loss if math.isfinite(loss) else math.inf for loss in found]

    @property
    def _point(self) -> Point:
        return self.problem.at_values(self.values)
