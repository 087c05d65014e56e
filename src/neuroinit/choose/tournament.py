"""Successive halving of initializations by short trainings."""

from __future__ import annotations

import itertools
import math
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from neuroinit.choose.auto_result import START, AutoResult, CandidateRecord
from neuroinit.choose.decision import decided
from neuroinit.common.batches import Batch
from neuroinit.common.errors import GradientError, LostRankError, out_of_memory
from neuroinit.common.layout import BatchLayout
from neuroinit.common.progress import Progress
from neuroinit.common.tensors import at_least_float32
from neuroinit.distributed.ranks import Ranks
from neuroinit.distributed.same_tensors import check_same_tensors
from neuroinit.methods.base import Initialization
from neuroinit.model.arguments.optimizers import OptimizerLike
from neuroinit.model.problem import ComputeLoss, LossFunction, Problem
from neuroinit.run.judging import Judge
from neuroinit.run.loop.closing import without_statistics
from neuroinit.run.optimize import optimize
from neuroinit.run.options import OptimizeOptions
from neuroinit.run.results.result import Result
from neuroinit.run.rollout import Outcome, Rollout, mean, split_batches

_OWN_VALUES = (
    "The ranks' devices or versions of torch compute differently, or a method uses something that "
    "only one rank has. Call `auto_` on one rank, inside `with neuroinit.distributed.alone():`, "
    "and send its parameters to all."
)
TIMED = 3  # steps to measure the time of a training step if no candidate is trained
NOTHING = "no candidate differs from it; the model is left alone"

Candidate = Initialization | Sequence[Initialization]


class Tournament:
    """Candidates, their short trainings, and the outcomes on validation batches.

    Args:
        model: The user's module.
        batches: Batches to train on and to validate.
        loss_fn: As for :func:`auto_`.
        compute_loss: As for :func:`auto_`.
        optimizer: As for :func:`auto_`.
        layout: Where the samples are in a batch.
        ranks: The processes that take part.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: list[Batch],
        loss_fn: LossFunction | None,
        compute_loss: ComputeLoss | None,
        optimizer: OptimizerLike,
        layout: BatchLayout,
        ranks: Ranks,
    ) -> None:
        if not batches:
            raise ValueError("Parameter `batches` yields nothing. Pass a list or a DataLoader.")
        self.problem = Problem(model, loss_fn, compute_loss, ranks=ranks, layout=layout)
        self.ranks = ranks
        check_same_tensors(ranks, self.problem.original)
        self.model, self.optimizer = self.problem.model, optimizer
        self.loss_fn = loss_fn
        self.options: OptimizeOptions = {
            "compute_loss": compute_loss,
            "cut": layout.custom,
            "batch_dim": layout.dim,
            "progress": False,
        }
        least = 2 if self.problem.batch_norms else 1
        self.validation, self.training = split_batches(batches, least, layout, ranks)
        self.begun, self.trained, self.done = time.perf_counter(), 0.0, 0
        self.rollouts = {START: Rollout(self.problem, self.problem.original, optimizer)}
        self.results: dict[str, list[Result]] = {START: []}
        self.outcomes: dict[str, list[Outcome]] = {START: []}
        self.seconds = {START: 0.0}
        self.failed: dict[str, str] = {}

    def make_candidates(
        self, named: Mapping[str, Candidate], bar: Progress, forgiving: bool
    ) -> None:
        """Run the methods of every candidate; leave out those that raise a ``GradientError``.

        Args:
            named: Name -> candidate.
            bar: Shows which candidate is being made.
            forgiving: Also leave out candidates whose methods raise another error for this model or
                these batches.
        """
        refused = (ValueError, RuntimeError) if forgiving else GradientError
        for k, (name, candidate) in enumerate(named.items()):
            bar.show(k, f"making {name}")
            methods = [candidate] if isinstance(candidate, Initialization) else list(candidate)
            begun, reason = time.perf_counter(), ""
            try:
                results, values = self._made(methods)
            except LostRankError:
                raise
            except refused as error:
                if out_of_memory(error):
                    raise
                reason = str(error) or type(error).__name__
            reason = reason or self._twin(values)
            reason = next(filter(None, self.ranks.texts(reason)), "")  # if one rank fails, all do
            if reason:
                self.failed[name] = reason
            else:
                check_same_tensors(self.ranks, values, f"parameters of `{name}`", _OWN_VALUES)
                self.rollouts[name] = Rollout(self.problem, values, self.optimizer)
                self.results[name], self.outcomes[name] = results, []
            self.seconds[name] = time.perf_counter() - begun

    def _twin(self, values: Mapping[str, Tensor]) -> str:
        """A clause that names a candidate with the same values; empty if there is none."""
        for name, rollout in self.rollouts.items():
            if all(torch.equal(rollout.values[n], value) for n, value in values.items()):
                return f"the same as {name}"
        return ""

    def _made(self, methods: list[Initialization]) -> tuple[list[Result], dict[str, Tensor]]:
        """The results of methods, each applied before the next, and the values at the end."""
        results: list[Result] = []
        with self._restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about candidates that may not be applied
            for method in methods:
                found = self._run(method)
                found.apply_(self.model)
                results.append(found)
            return results, self._values()

    def _run(self, method: Initialization) -> Result:
        """Run a method; its short training says more than statistics before and after."""
        with without_statistics():
            if not method.steps:
                return optimize(self.model, (), None, method, progress=False)
            return optimize(self.model, self.training, self.loss_fn, method, **self.options)

    def _values(self) -> dict[str, Tensor]:
        return {n: at_least_float32(p.detach().clone()) for n, p in self.model.named_parameters()}

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """A context whose exit restores the model's parameters."""
        original = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(original[name])

    def check_applied(self, found: AutoResult) -> None:
        """Raise if applying the result would make the parameters of the ranks differ."""
        with self._restored():
            found.apply_(self.model)
            values = self._values()
        check_same_tensors(self.ranks, values, "parameters after `auto_`", _OWN_VALUES)

    def run(self, budget: int, bar: Progress) -> None:
        """Successive halving with the start in every round."""
        alive = list(self.rollouts)
        if alive == [START]:
            self._train(self.rollouts[START], TIMED)
            return
        rounds = rounds_of(len(alive))
        for left in range(rounds, 0, -1):
            steps = (budget - self.done) // (left * len(alive))
            for name in alive:
                bar.show(len(self.seconds) + self.done, f"trying {name}")
                self._train(self.rollouts[name], steps)
                self.outcomes[name].append(self.rollouts[name].outcome(self.validation))
            last = {name: self.outcomes[name][-1] for name in alive}
            judge = Judge(last[START], self.rollouts[START].losses[0]).among(last.values())
            ranked = sorted(alive, key=lambda name: judge.standing(last[name]))
            best = ranked[: max(1, len(alive) // 2)]
            alive = best if START in best else [*best, START]

    def _train(self, rollout: Rollout, steps: int) -> None:
        """Take training steps, counted and timed."""
        before, begun = len(rollout.losses), time.perf_counter()
        rollout.train(itertools.islice(self._order(), before, None), steps)
        self.trained += time.perf_counter() - begun
        self.done += len(rollout.losses) - before

    def _order(self) -> Iterator[Batch]:
        """The training batches, repeated in a new order each time, the same for all candidates."""
        generator = random.Random(0)
        while True:
            yield from generator.sample(self.training, len(self.training))

    def result(self, budget: int) -> AutoResult:
        """The candidate to apply, and the records of all."""
        rounds = max(map(len, self.outcomes.values()))
        winner, verdict = START, NOTHING
        if rounds:
            last = {n: s[-1] for n, s in self.outcomes.items() if len(s) == rounds}
            winner, verdict = decided(last, self.rollouts[START].losses[0])
        return AutoResult(
            winner=winner,
            candidates=[self._record(name) for name in self.seconds],
            verdict=verdict,
            results=self.results[winner],
            steps=self.done,
            cost=(time.perf_counter() - self.begun) / (self.trained / max(1, self.done)),
            budget=budget,
        )

    def _record(self, name: str) -> CandidateRecord:
        losses = self.rollouts[name].losses if name in self.rollouts else []
        return CandidateRecord(
            name=name,
            scores=tuple(outcome.loss for outcome in self.outcomes.get(name, [])),
            learned=tuple(mean(o.learned) for o in self.outcomes.get(name, []) if o.learned),
            steps=len(losses),
            seconds=self.seconds[name],
            losses=tuple(losses),
            failed=self.failed.get(name, ""),
        )


def rounds_of(count: int) -> int:
    """Number of rounds of halving until one of ``count`` candidates is left."""
    return max(1, math.ceil(math.log2(count)))
