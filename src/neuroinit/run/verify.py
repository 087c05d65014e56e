"""Compares short trainings from the model's values and from a result before the result is applied.

Besides the result, other scales are tried if NIO's default rule is used. In a network without
residual branches these are one factor for every layer, so that its outputs have unit variance. In a
network with ``n`` branches they are the last layers of all branches divided by ``sqrt(n)``, the
same divided by ``n``, and one factor for every layer with branches divided by ``sqrt(n)``. If such
a network has embeddings, and the model as it is diverges or learns nothing, GPT-2's scales are
tried: a standard deviation of 0.02 for all weights and embeddings, with branches divided by
``sqrt(n)``. If the result is the only thing to try, it is also tried with halved log-scales. All
trainings use the user's optimizer and the same batches, on copies of the parameters. Two numbers
are measured on other batches:

    loss      L(x, y)
    learned   I = mean_s L(x, y_s) - L(x, y),    y_s: the targets of other samples

``I`` is what a network has learned about inputs and targets together. It is 0 if the outputs do not
depend on the inputs. Such a network can still lower its loss, by learning how frequent each target
is. So the *score* of a training is ``L - I``.

The best one (:mod:`neuroinit.run.judging`) replaces a model that diverges or learns nothing. A
model that learns is replaced if the score of the best one is lower by more than the noise between
batches, and by 2%. Learning rates near the stability limit often diverge only after the first dozen
steps, so a model that learns is trained on, with the steps that the candidates leave. How this was
chosen, and on which networks, is in ``docs/evidence/defaults.md``.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.layout import BatchLayout
from neuroinit.common.process.random_state import isolated
from neuroinit.common.progress import Progress
from neuroinit.common.tensors import at_least_float32, fingerprint
from neuroinit.distributed.ranks import ranks
from neuroinit.gradients.statistics.both import measure_with_agreement_if_possible
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.model.arguments.optimizers import OptimizerLike, others_frozen
from neuroinit.model.arguments.validation import check_values
from neuroinit.model.parameters.selection import unwrap
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.run.candidates import WHOLE, Candidate, candidates_of, with_gpt2
from neuroinit.run.judging import Judge
from neuroinit.run.results.result import Result
from neuroinit.run.rollout import Outcome, Rollout, full_batches, split_batches

STEPS = 12  # steps of a training
FURTHER = 24  # most steps by which that of the model as it is goes on
BUDGET = 60  # steps of all trainings
STANDARD_ERRORS = 1.0  # by which the score of a candidate has to be lower
LEAST = 0.02  # share of the score by which it has to be lower
NOT_BETTER = (
    f"not applied: {STEPS} training steps with this optimizer are not clearly better than from the "
    "model as it is"
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
) -> Result:
    """The result with the scales that are best in short trainings; see its ``verified``.

    Args:
        model: Any module.
        results: Name -> result; ``"whole"`` is the result of the method.
        batches: Batches to train on and to validate.
        loss_fn: As for :func:`optimize`.
        compute_loss: As for :func:`optimize`.
        optimizer: The optimizer, or a function of parameters that makes it.
        layout: Where the samples are in a batch.
        progress: Show a progress bar.
    """
    first, candidates = results[WHOLE], candidates_of(results)
    if not candidates:
        return first
    with isolated(), others_frozen(unwrap(model), optimizer):
        problem = Problem(model, loss_fn, compute_loss, ranks=ranks(), layout=layout)
        total = min(BUDGET, FURTHER + STEPS * (1 + len(candidates)))
        with (
            Progress("verifying", total, progress and problem.ranks.rank == 0) as bar,
            problem.ranks.together(),
        ):
            check_values(batches)
            batches = full_batches(batches, problem.layout, problem.ranks)
            trainings = _ShortTrainings(problem, batches, optimizer, bar, len(candidates))
            if trainings.judge.start_fails:
                candidates = with_gpt2(candidates, problem, (BUDGET - trainings.done) // STEPS)
            name, reason = trainings.decide(candidates)
            if name:
                candidates[name] = trainings.measured(candidates[name], batches)
            problem.ranks.end()
    if problem.ranks.rank == 0:
        log.info("The result is %s.", reason)
    if not name:
        return _unchanged(first, problem, reason)
    return _applied(first, candidates[name].result, reason)


class _ShortTrainings:
    """The trainings of the model as it is, and of candidates.

    Args:
        problem: The model and its loss.
        batches: Batches to train on and to validate.
        optimizer: The user's.
        bar: Shows which training runs.
        count: How many candidates there are.
    """

    def __init__(
        self,
        problem: Problem,
        batches: list[Batch],
        optimizer: OptimizerLike,
        bar: Progress,
        count: int,
    ) -> None:
        self.problem, self.optimizer, self.bar, self.done = problem, optimizer, bar, 0
        least = 2 if problem.batch_norms else 1
        self.validation, self.training = split_batches(
            batches, least, problem.layout, problem.ranks
        )
        self.judge = self._judge_of_start(min(FURTHER, BUDGET - STEPS * (1 + count)))

    def _judge_of_start(self, further: int) -> Judge:
        """Train the model as it is; if it learns, go on for some steps to see if it diverges."""
        phase, feed = "training the model as it is", itertools.cycle(self.training)
        rollout = Rollout(self.problem, self.problem.original, self.optimizer)
        judge = Judge(self._trained(phase, rollout, feed, STEPS), rollout.losses[0])
        if further <= 0 or judge.start_fails:
            return judge
        later = self._trained(phase, rollout, feed, further)
        return dataclasses.replace(judge, start=later) if judge.diverges(later) else judge

    def decide(self, candidates: Mapping[str, Candidate]) -> tuple[str, str]:
        """The name of the best candidate, or ``""`` if none is better; and the reason."""
        outcomes = {name: self._outcome(name, candidate) for name, candidate in candidates.items()}
        judge = self.judge.among(outcomes.values())
        best = judge.best(outcomes)
        ahead = (STANDARD_ERRORS, LEAST)
        if not best or not (judge.start_fails or judge.is_ahead(outcomes[best], *ahead)):
            return "", NOT_BETTER
        return best, (
            f"applied {best}: {judge.of(outcomes[best])} after {STEPS} training steps; "
            f"the model as it was {judge.of_start()}"
        )

    def measured(self, candidate: Candidate, batches: list[Batch]) -> Candidate:
        """The candidate with statistics before and after of its own scales."""
        found, problem = candidate.result, self.problem
        if found.before is not None and candidate.scales == found.scales:
            return candidate
        held_out = len(found.history) < len(batches)
        batch = problem.prepare(batches[len(found.history) if held_out else -1])
        plan = SmallBranches().measured(problem, batch, None)
        before, after = (
            measure_with_agreement_if_possible(problem.at(problem.unit_scales, values), batch, plan)
            for values in (problem.original, self._values(candidate))
        )
        result = dataclasses.replace(
            found,
            scales=candidate.scales,
            digests=_digests(found, problem, candidate.scales),
            before=before,
            after=after,
            held_out=held_out,
        )
        return Candidate(result, candidate.scales)

    def _values(self, candidate: Candidate) -> dict[str, Tensor]:
        """The parameters of a candidate, fresh values included."""
        values = dict(self.problem.original)
        for name, draw in candidate.result.drawn.items():
            values[name] = draw.like(values[name])
        for name, scale in candidate.scales.items():
            values[name] = values[name] * scale
        return values

    def _outcome(self, name: str, candidate: Candidate) -> Outcome:
        rollout = Rollout(self.problem, self._values(candidate), self.optimizer)
        feed = itertools.cycle(self.training)
        return self._trained(f"training the result, {name}", rollout, feed, STEPS)

    def _trained(self, phase: str, rollout: Rollout, feed: Iterator[Batch], steps: int) -> Outcome:
        """Train for some steps; return the outcome on the validation batches."""
        self.bar.show(self.done, phase)
        self.done += steps
        rollout.train(feed, steps)
        return rollout.outcome(self.validation)


def _unchanged(result: Result, problem: Problem, reason: str) -> Result:
    """A result that changes nothing."""
    ones = dict.fromkeys(result.scales, 1.0)
    digests = _digests(result, problem, ones)
    return dataclasses.replace(
        result, scales=ones, digests=digests, drawn={}, after=result.before, verified=reason
    )


def _applied(first: Result, found: Result, reason: str) -> Result:
    """The result of a method, with what the result of a candidate applies."""
    return dataclasses.replace(
        first,
        scales=found.scales,
        digests=found.digests,
        drawn=found.drawn,
        before=found.before,
        after=found.after,
        held_out=found.held_out,
        verified=reason,
    )


def _digests(result: Result, problem: Problem, scales: Mapping[str, float]) -> dict[str, list[int]]:
    """Hashes of the scaled tensors before and after other scales are applied."""
    digests = {}
    for name, (before, _) in result.digests.items():
        own = problem.parameters[name].detach()
        digests[name] = [before, fingerprint((at_least_float32(own) * scales[name]).to(own))]
    return digests
