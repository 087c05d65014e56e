"""Compares short trainings from the model's values and from a result before the result is applied.

Besides the result, other scales are tried if NIO's default rule is used and they raise the
agreement: small residual branches, or one factor for every layer of a network without branches;
else the result with halved log-scales. The best start is applied, or nothing. All trainings use the
user's optimizer and the same batches, on copies of the parameters. Other batches validate: the loss
of a start has to be lower than that of the model by more than the noise between batches. It also
has to be lower at twice the learning rate, where a start close to divergence fails. If the default
rule has found that the network is dead or explodes, a start must only not be worse, because the
loss of a dead network may not move during these trainings.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Mapping

from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.layout import BatchLayout
from neuroinit.common.process.random_state import isolated
from neuroinit.common.progress import Progress
from neuroinit.common.tensors import at_least_float32, fingerprint
from neuroinit.distributed.ranks import ranks
from neuroinit.model.arguments.optimizers import OptimizerLike, others_frozen
from neuroinit.model.parameters.selection import unwrap
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.run.results.result import Result
from neuroinit.run.rollout import Rollout, lead, mean, split_batches

STEPS = 12  # steps of a training; there are at most three of these
FASTER_STEPS = 18  # steps of the training at a higher learning rate: 54 steps in all
HIGHER_RATE = 2.0  # factor of the learning rate
STANDARD_ERRORS = 2.0  # by which the loss of a result has to be lower
WHOLE, HALF, LAYERS, BRANCHES = "whole", "half", "layer by layer", "to residual branches"
NOT_BETTER = (
    f"not applied: {STEPS} training steps with this optimizer are not better than from the model "
    "as it is"
)

log = logging.getLogger(__name__)


def verified(
    model: nn.Module,
    results: Mapping[str, Result],
    batches: list[Batch],
    loss_fn: LossFunction | None,
    compute_loss: ComputeLoss | None,
    optimizer: OptimizerLike,
    layout: BatchLayout,
    progress: bool = False,
    diagnoses: bool = False,
) -> Result:
    """The best result by short trainings, all or half of it, or none; see its ``verified``.

    Args:
        model: Any module.
        results: Name -> result; ``"whole"`` is the result of the method.
        batches: Batches to train on and to validate.
        loss_fn: As for :func:`optimize`.
        compute_loss: As for :func:`optimize`.
        optimizer: The optimizer, or a function of parameters that makes it.
        layout: Where the samples are in a batch.
        progress: Show a progress bar.
        diagnoses: Whether the method changes a network only if it is dead or explodes.
    """
    first = results[WHOLE]
    options = {name: (found, 1.0) for name, found in results.items() if _changes(found)}
    if not options:
        return first
    if list(options) == [WHOLE]:
        options[HALF] = first, 0.5
    with isolated(), others_frozen(unwrap(model), optimizer):
        problem = Problem(model, loss_fn, compute_loss, ranks=ranks(), layout=layout)
        total = STEPS * (1 + len(options)) + FASTER_STEPS
        with Progress("verifying", total, progress and problem.ranks.rank == 0) as bar:
            broken = diagnoses and WHOLE in options
            with problem.ranks.together():
                name, reason = _Trial(problem, batches, optimizer, bar, broken).decide(options)
                problem.ranks.end()
    if problem.ranks.rank == 0:
        log.info("The result is %s.", reason)
    chosen, share = options.get(name, (first, 0.0))
    own = dataclasses.replace(
        first,
        scales=chosen.scales,
        digests=chosen.digests,
        before=chosen.before,
        after=chosen.after,
        held_out=chosen.held_out,
    )
    return _in_part(own, problem, share, reason)


def _changes(result: Result) -> bool:
    return bool(result.drawn) or any(scale != 1 for scale in result.scales.values())


class _Trial:
    def __init__(
        self,
        problem: Problem,
        batches: list[Batch],
        optimizer: OptimizerLike,
        bar: Progress,
        broken: bool,
    ) -> None:
        self.needed = -STANDARD_ERRORS if broken else STANDARD_ERRORS
        self.problem, self.optimizer, self.bar, self.done = problem, optimizer, bar, 0
        least = 2 if problem.batch_norms else 1
        self.validation, self.training = split_batches(
            batches, least, problem.layout, problem.ranks
        )
        self.start, losses = self._trained("training the model as it is", problem.original)
        self.diverges = not mean(self.start) <= 2 * abs(losses[0])

    def decide(self, options: Mapping[str, tuple[Result, float]]) -> tuple[str, str]:
        """The name of the best option, or ``""`` if it is not confirmed; and the reason.

        An option is ``(result, share)``: which share of the log-scales is applied.
        """
        losses = {
            name: self._trained(f"training the result, {name}", self._values(*option))[0]
            for name, option in options.items()
        }
        best = min(losses, key=lambda name: mean(losses[name]))
        if not self._confirmed(options[best], losses[best]):
            return "", NOT_BETTER
        return best, self._reason(best, losses[best])

    def _values(self, result: Result, share: float) -> dict[str, Tensor]:
        """The parameters, fresh values included, with a share of the log-scales applied."""
        values = dict(self.problem.original)
        for name, draw in result.drawn.items():
            values[name] = draw.like(values[name])
        for name, scale in result.scales.items():
            values[name] = values[name] * scale**share
        return values

    def _confirmed(self, option: tuple[Result, float], losses: list[float]) -> bool:
        """Whether an option is better than the model as it is, and not close to divergence.

        Or not worse, if the model is broken.
        """
        if self.diverges:
            return math.isfinite(mean(losses))
        if not self._ahead(losses, self.needed):
            return False
        phase = "training at a higher learning rate"
        faster, _ = self._trained(phase, self._values(*option), FASTER_STEPS, HIGHER_RATE)
        return self._ahead(faster, min(0.0, self.needed))

    def _ahead(self, losses: list[float], errors: float) -> bool:
        """Whether losses are lower than at the start by more than ``errors`` standard errors."""
        if not math.isfinite(mean(losses)):
            return False
        gain, noise = lead(self.start, losses)
        return gain > errors * noise if errors else gain >= 0

    def _reason(self, name: str, losses: list[float]) -> str:
        other = "diverges" if self.diverges else f"reaches {mean(self.start):.4g}"
        return (
            f"applied {name}: loss {mean(losses):.4g} after {STEPS} training steps, where the "
            f"model as it was {other}"
        )

    def _trained(
        self, phase: str, values: dict[str, Tensor], steps: int = STEPS, rate: float = 1.0
    ) -> tuple[list[float], list[float]]:
        """Train; return the validation losses after it, and the training losses."""
        self.bar.show(self.done, phase)
        self.done += steps
        rollout = Rollout(self.problem, values, self.optimizer, rate)
        rollout.train(itertools.cycle(self.training), steps)
        return rollout.evaluate(self.validation), rollout.losses


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
