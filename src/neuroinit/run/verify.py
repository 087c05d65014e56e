"""A check before a model is changed: short trainings from its own values and from the result.

The result is applied whole, with its log-scales halved, or not at all. Both trainings use the
user's optimizer and the same batches, on copies of the parameters; other batches validate. A result
has to be better by more than the noise between validation batches. It also has to hold at twice the
learning rate, which a start close to divergence does not.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.layout import BatchLayout
from neuroinit.common.random_state import isolated
from neuroinit.common.tensors import at_least_float32, fingerprint
from neuroinit.distributed.ranks import ranks
from neuroinit.model.optimizers import OptimizerLike, others_frozen
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.model.selection import unwrap
from neuroinit.run.result import Result
from neuroinit.run.rollout import Rollout, lead, mean, split_batches

KEPT = 16  # batches: 4 validate, 12 train
STEPS = 12  # of a training; three of them at most
FASTER_STEPS = 18  # of the training at a higher learning rate: 54 steps in all
HIGHER_RATE = 2.0  # its factor
STANDARD_ERRORS = 2.0  # by which a result has to be better


class KeptBatches:
    """Yields a user's batches and keeps the first of them.

    Args:
        batches: Any iterable; a generator stays one that can be used once.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches, self.kept = batches, list[Batch]()

    def __iter__(self) -> Iterator[Batch]:
        for k, batch in enumerate(self.batches):
            if k == len(self.kept) < KEPT:
                self.kept.append(batch)
            yield batch


def verified(
    model: nn.Module,
    result: Result,
    batches: list[Batch],
    loss_fn: LossFunction | None,
    compute_loss: ComputeLoss | None,
    optimizer: OptimizerLike,
    layout: BatchLayout,
) -> Result:
    """The result as far as short trainings confirm it; its ``verified`` says what was decided."""
    if all(scale == 1 for scale in result.scales.values()) and not result.drawn:
        return result
    with isolated(), others_frozen(unwrap(model), optimizer):
        problem = Problem(model, loss_fn, compute_loss, ranks=ranks(), layout=layout)
        trial = _Trial(problem, batches, optimizer)
        share, reason = trial.decide(result)
    return _in_part(result, problem, share, reason)


class _Trial:
    def __init__(self, problem: Problem, batches: list[Batch], optimizer: OptimizerLike) -> None:
        self.problem, self.optimizer = problem, optimizer
        least = 2 if problem.batch_norms else 1
        self.validation, self.training = split_batches(
            batches, least, problem.layout, problem.ranks
        )

    def decide(self, result: Result) -> tuple[float, str]:
        """The share of the log-scales to apply, and the reason."""
        start, start_losses = self._trained(self.problem.original)
        diverges = not math.isfinite(mean(start)) or mean(start) > 2 * abs(start_losses[0])
        for share, name in ((1.0, "whole"), (0.5, "half")):
            values = _values(result, self.problem, share)
            losses, _ = self._trained(values)
            if not math.isfinite(mean(losses)):
                continue
            gain, noise = lead(start, losses) if not diverges else (math.inf, 0.0)
            if not gain > STANDARD_ERRORS * noise:
                continue
            if not diverges:
                faster, _ = self._trained(values, FASTER_STEPS, HIGHER_RATE)
                if not mean(faster) <= mean(start):
                    continue
            other = "diverges" if diverges else f"reaches {mean(start):.4g}"
            return share, (
                f"applied {name}: loss {mean(losses):.4g} after {STEPS} training steps, where the "
                f"model as it was {other}"
            )
        return 0.0, (
            f"not applied: {STEPS} training steps with this optimizer are not better than from the "
            "model as it is"
        )

    def _trained(
        self, values: dict[str, Tensor], steps: int = STEPS, rate: float = 1.0
    ) -> tuple[list[float], list[float]]:
        """Validation losses after a training, and its training losses."""
        rollout = Rollout(self.problem, values, self.optimizer, rate)
        rollout.train(itertools.cycle(self.training), steps)
        return rollout.evaluate(self.validation), rollout.losses


def _values(result: Result, problem: Problem, share: float) -> dict[str, Tensor]:
    """The parameters with a share of the log-scales; fresh values are drawn whole."""
    values = dict(problem.original)
    for name, draw in result.drawn.items():
        values[name] = draw.like(values[name])
    for name, scale in result.scales.items():
        values[name] = values[name] * scale**share
    return values


def _in_part(result: Result, problem: Problem, share: float, reason: str) -> Result:
    """The result with a share of its log-scales."""
    if share == 1:
        return dataclasses.replace(result, verified=reason)
    scales = {n: s**share for n, s in result.scales.items()}
    digests = {}
    for name, (before, _) in result.digests.items():
        own = problem.parameters[name].detach()
        digests[name] = [before, fingerprint((at_least_float32(own) * scales[name]).to(own))]
    drawn = result.drawn if share else {}
    after = None if share else result.before
    return dataclasses.replace(
        result, scales=scales, digests=digests, drawn=drawn, after=after, verified=reason
    )
