"""Compares short trainings from the model's values and from a result before the result is applied.

Besides the result, other scales are tried if NIO's default rule is used: the ends of residual
branches divided by the root of their number, or by their number; one factor for every layer of a
network without branches; or the result with halved log-scales. All trainings use the user's
optimizer and the same batches, on copies of the parameters. Other batches validate. Two numbers are
taken of each of them:

    loss      L(x, y)
    learned   I = mean_s L(x, y_s) - L(x, y),    y_s: the targets of other samples

``I`` is what a network has learned about inputs and targets together. It is 0 if the outputs do not
depend on the inputs. Such a network can still lower its loss, by learning how frequent each target
is. So the *score* of a training is ``L - I``.

1. A training that diverges, or that has learned nothing, ``|I| <= NOTHING L``, never wins.
2. If the training of the unchanged model is of this kind, the start with the lowest loss replaces
   it, unless that diverges at twice the learning rate.
3. Else the start with the lowest score replaces it, if the score is lower by more than the noise
   between batches, and not higher at twice the learning rate, where a start close to divergence
   fails. If the default rule calls the model dead or exploding, any lower score is enough.
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
from neuroinit.run.rollout import Outcome, Rollout, lead, mean, split_batches

STEPS = 12  # steps of a training; there are at most three of these
FASTER_STEPS = 18  # steps of the training at a higher learning rate: 54 steps in all
HIGHER_RATE = 2.0  # factor of the learning rate
STANDARD_ERRORS = 2.0  # by which the score of a result has to be lower
DIVERGED = 2.0  # a loss above this multiple of the first loss
WHOLE, HALF, LAYERS = "whole", "half", "layer by layer"
BRANCHES, SMALLER_BRANCHES = "to residual branches", "to residual branches, with squared factors"
NOT_BETTER = (
    f"not applied: {STEPS} training steps with this optimizer are not better than from the model "
    "as it is"
)

Option = tuple[Result, float]  # a result, and which share of its log-scales is applied

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
    options = _options(results)
    if not options:
        return first
    with isolated(), others_frozen(unwrap(model), optimizer):
        problem = Problem(model, loss_fn, compute_loss, ranks=ranks(), layout=layout)
        total = STEPS * (1 + len(options)) + FASTER_STEPS
        with Progress("verifying", total, progress and problem.ranks.rank == 0) as bar:
            diagnosed = diagnoses and WHOLE in options
            with problem.ranks.together():
                name, reason = _Trial(problem, batches, optimizer, bar, diagnosed).decide(options)
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


def _options(results: Mapping[str, Result]) -> dict[str, Option]:
    """What is tried, by name: results, and shares of their log-scales; at most two."""
    options = {name: (found, 1.0) for name, found in results.items() if _changes(found)}
    if list(options) == [WHOLE]:
        options[HALF] = results[WHOLE], 0.5
    if list(options) == [BRANCHES]:
        options[SMALLER_BRANCHES] = results[BRANCHES], 2.0
    return options


def _changes(result: Result) -> bool:
    return bool(result.drawn) or any(scale != 1 for scale in result.scales.values())


class _Trial:
    def __init__(
        self,
        problem: Problem,
        batches: list[Batch],
        optimizer: OptimizerLike,
        bar: Progress,
        diagnosed: bool,
    ) -> None:
        self.problem, self.optimizer, self.bar, self.done = problem, optimizer, bar, 0
        least = 2 if problem.batch_norms else 1
        self.validation, self.training = split_batches(
            batches, least, problem.layout, problem.ranks
        )
        self.start, losses = self._trained("training the model as it is", problem.original)
        self.first_loss = abs(losses[0])
        self.broken = not self._learns(self.start)
        self.needed = 0.0 if diagnosed else STANDARD_ERRORS

    def decide(self, options: Mapping[str, Option]) -> tuple[str, str]:
        """The name of the best option, or ``""`` if it is not confirmed; and the reason."""
        found = {
            name: self._trained(f"training the result, {name}", self._values(*option))[0]
            for name, option in options.items()
        }
        usable = {name: seen for name, seen in found.items() if self._learns(seen)}
        if not usable:
            return "", NOT_BETTER
        best = min(usable, key=lambda name: self._rank(usable[name]))
        if not self._confirmed(options[best], usable[best]):
            return "", NOT_BETTER
        return best, self._reason(best, usable[best])

    def _rank(self, seen: Outcome) -> float:
        return seen.loss if self.broken else mean(seen.scores)

    def _values(self, result: Result, share: float) -> dict[str, Tensor]:
        """The parameters, fresh values included, with a share of the log-scales applied."""
        values = dict(self.problem.original)
        for name, draw in result.drawn.items():
            values[name] = draw.like(values[name])
        for name, scale in result.scales.items():
            values[name] = values[name] * scale**share
        return values

    def _confirmed(self, option: Option, seen: Outcome) -> bool:
        """Whether an option is better than the model as it is, and not close to divergence."""
        if self._diverges(self.start):
            return True
        if not self.broken and not self._ahead(seen, self.needed):
            return False
        phase = "training at a higher learning rate"
        faster, _ = self._trained(phase, self._values(*option), FASTER_STEPS, HIGHER_RATE)
        return not self._diverges(faster) if self.broken else self._ahead(faster, 0.0)

    def _learns(self, seen: Outcome) -> bool:
        return not self._diverges(seen) and not seen.learned_nothing

    def _diverges(self, seen: Outcome) -> bool:
        return not seen.loss <= DIVERGED * self.first_loss

    def _ahead(self, seen: Outcome, errors: float) -> bool:
        """Whether scores are lower than at the start by more than ``errors`` standard errors."""
        if not math.isfinite(seen.loss):
            return False
        gain, noise = lead(self.start.scores, seen.scores)
        return gain > errors * noise if errors else gain >= 0

    def _reason(self, name: str, seen: Outcome) -> str:
        diverges = self._diverges(self.start)
        other = "diverges" if diverges else f"reaches {self.start.loss:.4g}"
        if not diverges and self.start.learned_nothing:
            other += " and learns nothing about its inputs"
        return (
            f"applied {name}: loss {seen.loss:.4g} after {STEPS} training steps, where the "
            f"model as it was {other}"
        )

    def _trained(
        self, phase: str, values: dict[str, Tensor], steps: int = STEPS, rate: float = 1.0
    ) -> tuple[Outcome, list[float]]:
        """Train; return the outcome on the validation batches, and the training losses."""
        self.bar.show(self.done, phase)
        self.done += steps
        rollout = Rollout(self.problem, values, self.optimizer, rate)
        rollout.train(itertools.cycle(self.training), steps)
        return rollout.outcome(self.validation), rollout.losses


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
