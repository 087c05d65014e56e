"""Short trainings of copies of a model's parameters, with the user's optimizer.

With several ranks, each rank computes the gradient of its batch, and all take a step with the mean
gradient of all samples, as DistributedDataParallel does. Scores are means over the samples of all
ranks. So parameters and scores are the same on all ranks.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.layout import SAMPLES_FIRST, BatchLayout
from neuroinit.common.tensors import flatten, unflatten, zeros_if_missing
from neuroinit.distributed.ranks import ALONE, Ranks
from neuroinit.gradients.agreement import (
    contrast,
    noting_contrast,
    permuted,
    targets_enter_losses_only,
)
from neuroinit.gradients.sub_batches import sub_batches
from neuroinit.model.arguments.optimizers import OptimizerLike, twin_of
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

VALIDATION_BATCHES = 4  # on which every short training is evaluated
# share of the loss; of 93 candidates that learned less, 2 trained (docs/evidence/defaults.md)
NOTHING = 1e-3


@dataclass(frozen=True)
class Outcome:
    """The losses of a short training on the validation batches.

    Args:
        losses: The loss ``L`` of every batch.
        learned: ``I``, by how much it is lower than with the targets of other samples; empty if the
            targets are not known.
    """

    losses: list[float]
    learned: list[float]

    @property
    def loss(self) -> float:
        """The mean loss."""
        return mean(self.losses)

    @property
    def learned_nothing(self) -> bool:
        """Whether ``|I| <= NOTHING L``; ``False`` if the targets are not known."""
        if not self.learned:
            return False
        least = NOTHING * abs(self.loss) * math.sqrt(len(self.learned))
        return math.hypot(*self.learned) <= least  # squares of a diverged float64 loss overflow


class Rollout:
    """The short training of one candidate.

    Args:
        problem: The model and its loss; its ranks train together.
        values: Parameter name -> value at the start; the same on all ranks.
        optimizer: As for :func:`twin_of`.
    """

    def __init__(
        self, problem: Problem, values: dict[str, Tensor], optimizer: OptimizerLike
    ) -> None:
        self.problem = problem
        self.values = {
            n: v.detach().clone().requires_grad_(problem.parameters[n].requires_grad)
            for n, v in values.items()
        }
        self.trained = [v for v in self.values.values() if v.requires_grad]
        self.optimizer = twin_of(optimizer, problem.model, self.values)
        self.losses: list[float] = []

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite; no further steps are taken then."""
        return bool(self.losses) and not math.isfinite(self.losses[-1])

    def train(self, batches: Iterator[Batch], steps: int) -> None:
        """Take optimizer steps; stop if a loss is not finite."""
        with self._point.session() as session, session.keeping_layers():
            for _ in range(steps):
                if self.diverged:
                    return
                batch = self.problem.prepare(next(batches))
                seen: list[float] = []

                def closure(batch: Batch = batch, seen: list[float] = seen) -> Tensor:
                    loss = session.loss(batch)
                    found = session.gradient_by(loss, self.trained)
                    loss, gradients = self._mean_over_ranks(
                        loss, found, self.problem.layout.size(batch)
                    )
                    for value, gradient in zip(self.trained, gradients, strict=True):
                        value.grad = gradient
                    seen.append(loss.item())
                    return loss

                self.optimizer.step(closure)  # type: ignore[arg-type]
                self.losses.append(seen[0])

    def _mean_over_ranks(
        self, loss: Tensor, gradients: Sequence[Tensor | None], size: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Mean loss and gradients over the samples of all ranks; ``None`` if no rank has one."""
        ranks = self.problem.ranks
        if ranks.alone:
            return loss, gradients
        found = zeros_if_missing(gradients, self.trained)
        used = [float(g is not None) for g in gradients]
        numbers = torch.tensor([size, size * loss.item(), *used], dtype=torch.float64, device="cpu")
        total, weighted, *used = ranks.sum(numbers).tolist()
        mean = ranks.sum(flatten(found) * (size / total))
        parts = unflatten(mean, self.trained)
        known = [part if count else None for part, count in zip(parts, used, strict=True)]
        return torch.full_like(loss, weighted / total), known

    def outcome(self, batches: Sequence[Batch]) -> Outcome:
        """The losses of batches, and what was learned about them.

        The loss of a batch is its mean over all ranks, infinite if it is not finite. What was
        learned is by how much it is lower than with the targets of other samples,

            mean_s L(x, y_s) - L(x, y)

        with the permuted targets ``y_s`` of :mod:`neuroinit.gradients.agreement`. It is what the
        network knows of inputs and targets together: exactly 0 if its outputs do not depend on its
        inputs, whatever it knows of the frequencies of targets. It is empty if it is not known
        which part of a batch the targets are, if the loss cannot take targets of other samples, or
        if a batch has one sample.
        """
        prepared = [self.problem.prepare(batch) for batch in batches]
        try:
            losses, learned = self._both(prepared)
        except ValueError:
            losses, learned = self._losses(self._point, prepared), []
        known = self.problem.ranks.least(len(learned))  # of all ranks
        return Outcome(
            self._over_ranks(batches, losses), self._over_ranks(batches, learned) if known else []
        )

    def _both(self, batches: Sequence[Batch]) -> tuple[list[float], list[float]]:
        """Losses and what was learned; from the same forward passes if there is a ``loss_fn``."""
        problem, sizes = self.problem, [self.problem.layout.size(batch) for batch in batches]
        if min(sizes) < 2:
            return self._losses(self._point, batches), []
        others = [permuted(problem, batch) for batch in batches]
        if problem.compute_loss is None:
            return self._both_at_once(others)
        once = targets_enter_losses_only(self._point, batches[0])
        contrasted = replace(self._point, problem=contrast(problem, sizes[0] if once else 0))
        return self._losses(self._point, batches), [-x for x in self._losses(contrasted, others)]

    def _both_at_once(self, batches: Sequence[Batch]) -> tuple[list[float], list[float]]:
        """As :meth:`_both`, of batches of :func:`permuted`, with one forward pass for each."""
        noted, losses, learned = list[Tensor](), list[float](), list[float]()
        point = replace(self._point, problem=noting_contrast(self.problem, noted))
        with point.session() as session, session.keeping_layers():
            for batch in batches:
                losses.append(session.loss_value(batch))
                learned.append(-float(noted[-1]))
                noted.clear()
        return losses, learned

    def _losses(self, point: Point, batches: Sequence[Batch]) -> list[float]:
        with point.session() as session, session.keeping_layers():
            return [session.loss_value(batch) for batch in batches]

    def _over_ranks(self, batches: Sequence[Batch], found: Sequence[float]) -> list[float]:
        """The mean over the samples of all ranks; infinite if a value is not finite."""
        losses = [loss if math.isfinite(loss) else math.inf for loss in found]
        if self.problem.ranks.alone:
            return losses
        sizes = [self.problem.layout.size(batch) for batch in batches]
        rows = [[loss * size, size] for loss, size in zip(losses, sizes, strict=True)]
        table = self.problem.ranks.sum(torch.tensor(rows, dtype=torch.float64, device="cpu"))
        return [weighted / size for weighted, size in table.tolist()]

    @property
    def _point(self) -> Point:
        return self.problem.at_values(self.values)


def full_batches(batches: list[Batch], layout: BatchLayout, ranks: Ranks = ALONE) -> list[Batch]:
    """Drop short batches, such as the last of a data loader, at equal places on every rank."""
    full = [2 * layout.size(b) >= layout.size(batches[0]) for b in batches]
    table = [json.loads(text) for text in ranks.texts(json.dumps(full))]
    return [b for b, *kept in zip(batches, *table, strict=False) if all(kept)]


def split_batches(
    batches: list[Batch],
    least: int,
    layout: BatchLayout = SAMPLES_FIRST,
    ranks: Ranks = ALONE,
) -> tuple[list[Batch], list[Batch]]:
    """Split batches into some for validation and some for training, with different samples.

    Of eight batches or more, the first four validate. Of fewer, a quarter of every batch does.

    Args:
        batches: The same number on every rank.
        least: Fewest samples in a batch.
        layout: Where the samples are in a batch.
        ranks: All of them get the same number of batches.
    """
    if len(batches) >= 2 * VALIDATION_BATCHES:
        return batches[:VALIDATION_BATCHES], batches[VALIDATION_BATCHES:]
    cut, sizes = layout.cut, [layout.size(batch) for batch in batches]
    if min(sizes) < 2 * least:
        raise ValueError(
            f"Of fewer than {2 * VALIDATION_BATCHES} batches, each is cut into a part to train on "
            f"and one to validate, of at least {least} samples. Found a batch of {min(sizes)}. "
            "Pass larger batches, or more."
        )
    cuts = [size - max(least, size // 4) for size in sizes]
    training = [cut(batch, 0, at) for batch, at in zip(batches, cuts, strict=True)]
    held = [cut(b, at, size) for b, at, size in zip(batches, cuts, sizes, strict=True)]
    if len(held) > 1:
        return held, training
    size = sizes[0] - cuts[0]
    count = ranks.least(min(VALIDATION_BATCHES, size // least))
    parts = sub_batches(size, count, 0.0, "cover")  # several, to estimate the noise
    return [cut(held[0], start, stop) for start, stop in parts], training


def lead(start: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The mean over batches of ``start - theirs``, and its standard error.

    If all losses are positive, their logarithms are compared, so that one batch with a large loss
    does not dominate.
    """
    if min(*start, *theirs) > 0:
        start, theirs = [math.log(x) for x in start], [math.log(x) for x in theirs]
    gains = [a - b for a, b in zip(start, theirs, strict=True)]
    if len(gains) == 1:
        return gains[0], math.inf
    return mean(gains), statistics.stdev(gains) / math.sqrt(len(gains))


def mean(values: Sequence[float]) -> float:
    """The mean of some numbers."""
    return sum(values) / len(values)
