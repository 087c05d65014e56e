"""The optimization loop: one step per batch, errors, memory, checkpoints, the result."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from neuroinit.common.batches import END, Batch
from neuroinit.common.errors import GradientError, NonFiniteError, listed, out_of_memory, warn
from neuroinit.common.process.signals import allowed
from neuroinit.common.progress import Progress
from neuroinit.common.sealed_json import of_kind
from neuroinit.methods.base import Initialization
from neuroinit.methods.updates import Position, clamped
from neuroinit.model.finite import why_not_finite
from neuroinit.model.parameters.zero_tensors import blocked_by_zeros
from neuroinit.model.problem import Problem
from neuroinit.run.engine_choice import Schedule, choose_schedule, common_schedule
from neuroinit.run.loop.checkpoint import Checkpoint
from neuroinit.run.loop.closing import (
    check_ranks,
    conclusion,
    make_result,
    measured,
    wants_statistics,
    warn_of_the_bound,
)
from neuroinit.run.loop.state import RunState
from neuroinit.run.loop.supply import Supply
from neuroinit.run.results.result import Result, StepRecord

SETTLED = "the scales no longer change"
PATIENCE = 5  # steps without movement before an early stop

OnStep = Callable[[StepRecord], None]

log = logging.getLogger(__name__)


class Run:
    """One run of a method on a problem.

    Args:
        problem: The model and its loss.
        method: The method.
        schedule: The user's engine and micro-batch.
        memory_limit: Most bytes of extra memory; ``None`` for a share of the free memory.
        on_step: Called with the record of every step.
        checkpoint: The file in which the state is saved.
        states: Every rank's random state at the beginning.
    """

    def __init__(
        self,
        problem: Problem,
        method: Initialization,
        schedule: Schedule,
        memory_limit: int | None,
        on_step: OnStep | None,
        checkpoint: Checkpoint,
        states: list[str],
    ) -> None:
        self.problem, self.given, self.on_step = problem, method, on_step
        self.ranks, self.checkpoint, self.states = checkpoint.ranks, checkpoint, states
        self.memory_limit, self.lowest = memory_limit, method.lowest(problem.scaled)
        self.now = RunState(method, schedule, *method.start(problem))
        self.taken, self.settled = 0, SETTLED

    def resume(self) -> None:
        """Continue from the checkpoint that :meth:`_save` wrote, if there is one."""
        found = self.checkpoint.found
        if found is None:
            return
        with self.checkpoint.naming():
            self.taken = of_kind(int, found["taken"])
            self.now.restore(found, self.checkpoint.same_options)
            for trait, outcome in of_kind(dict, found["traits"]).items():
                self.problem.traits.note(trait, of_kind(bool, outcome))

    def _save(self, supply: Supply) -> None:
        """Write everything that the next step depends on to the checkpoint."""
        self.checkpoint.write(
            {
                "random": self.states,
                "taken": supply.taken,
                "traits": {str(t): known for t, known in self.problem.traits.outcomes.items()},
                **self.now.to_json(self.given),
            }
        )

    def go(self, batches: Iterable[Batch], progress: bool) -> Result:
        """Step until all steps are done, the scales stop changing, or the batches end."""
        now, steps = self.now, self.given.steps
        supply = Supply(batches, self.problem, self.checkpoint, self.taken)
        with Progress(type(self.given).__name__, steps, progress) as bar:
            batch, stopped = self._steps(supply, bar)
            if len(now.history) < steps and supply.ended:
                warn(
                    f"The batches ended after {len(now.history)} of {steps} steps; "
                    "the scales are those found so far. Pass a list or a DataLoader to go on.",
                )
            found = now.method.final_scales(now.scales, now.state)
            now.scales = clamped(found, now.scales, self.lowest)
            bar.phase("measuring the gradients before and after")
            result = self._finish(supply, batch, stopped)
        if self.ranks.rank == 0:
            log.info("%s", conclusion(result))
        self.checkpoint.remove()
        return result

    def _steps(self, supply: Supply, bar: Progress) -> tuple[Batch, str]:
        """All steps; returns the last batch, and why they have ended."""
        batch, steps = None, self.given.steps
        for step in range(len(self.now.history), steps):
            found = supply.take(self.now.method, first=not self.now.history)
            if found is END:
                return batch, f"the batches ended, {steps} steps were wanted"
            batch = self.problem.prepare(found)
            record = self._guarded_step(step, batch)
            bar.show(step + 1, self._summary(record))
            if self.now.still >= PATIENCE:
                return batch, self.settled
            if step + 1 < steps and self.checkpoint.due(step + 1):
                self._save(supply)
        return batch, "all steps done"

    def _guarded_step(self, step: int, batch: Batch) -> StepRecord:
        """A step; its errors name the step and have the result of the steps before."""
        try:
            record = self._fitting_step(step, batch)
        except GradientError as error:
            reason = why_not_finite(batch) if isinstance(error, NonFiniteError) else ""
            failed = type(error)(f"Step {step}: {error}{reason}")
            stopped = f"step {step} failed"
            failed.result = make_result(self.problem, self.now, stopped, complete=False)
            raise failed from error
        self.now.history.append(record)
        if self.ranks.rank == 0:
            log.debug("Step %d: loss %.4g  %s", step, record.loss, self._summary(record))
        if self.on_step is not None:
            with allowed():
                self.on_step(record)
        return record

    def _fitting_step(self, step: int, batch: Batch) -> StepRecord:
        """A step; whenever memory runs out it is repeated in smaller pieces."""
        while True:
            try:
                with self.problem.ranks.together():
                    if not self.now.begun:
                        self._begin(batch)
                    self.now.begun = True
                    return self._step(step, batch)
            except (RuntimeError, MemoryError) as error:
                self._shrink(batch, error)

    def _shrink(self, batch: Batch, error: BaseException) -> None:
        """Choose a schedule that needs less memory if memory ran out; raise any other error."""
        if not out_of_memory(error):
            raise error
        now = self.now
        plan = now.method.plan(self.problem, batch, now.schedule.microbatch)
        smaller = now.schedule.with_less_memory(self.problem, batch, plan) or now.schedule
        smaller = common_schedule(self.ranks, smaller)  # the tests of a model depend on memory
        if smaller == now.schedule:
            raise error
        now.schedule = smaller
        self.problem.warn_once(
            "Memory ran out: going on in smaller pieces, which is slower. A lower "
            "`memory_limit`, or `engine='stream'` and `microbatch=`, avoids the attempt."
        )

    def _begin(self, batch: Batch) -> None:
        """Determine automatic settings, the engine and blocked parameters on the first batch."""
        problem, now = self.problem, self.now
        now.method = now.method.for_samples(problem, problem.layout.size(batch))
        plan = now.method.plan(problem, batch, now.schedule.microbatch)
        now.method = now.method.resolve(problem, batch)
        if now.schedule.engine is not None:
            now.schedule.engine.prepare(problem, batch, plan, now.scales)
        if now.schedule.differentiates_graphs(now.method):
            small = problem.at(0.1 * problem.unit_scales)  # gradients at scale 1 may not be finite
            now.schedule = choose_schedule(small, batch, plan, now.schedule, self.memory_limit)
        if now.method.needs_loss and not problem.sharded:
            now.blocked = blocked_by_zeros(problem, batch)
        if now.blocked:
            problem.warn_once(
                f"All-zero tensors block the gradient of {listed(now.blocked)}: these cannot be "
                "optimized. `reinit_zeros=0.01` gives all-zero tensors a small normal start.",
            )

    def _step(self, step: int, batch: Batch) -> StepRecord:
        begun, now = time.perf_counter(), self.now
        plan = now.method.plan(self.problem, batch, now.schedule.microbatch)
        position = Position(now.scales, now.state, step / now.method.steps)
        engine = now.schedule.used_by(now.method)
        found = now.method.step(self.problem, batch, plan, engine, position)
        moved, now.state = clamped(found.scales, now.scales, self.lowest), found.state
        moves = _moves(moved, now.scales, now.method.tolerance)
        now.still = PATIENCE if found.done else 0 if moves else now.still + 1
        self.settled = found.done or SETTLED
        now.scales = moved
        return StepRecord(
            step=step,
            loss=found.loss,
            cosine=found.cosine,
            norm=found.norm,
            norm_max=found.norm_max,
            norm_min=found.norm_min,
            constrained=found.constrained,
            seconds=time.perf_counter() - begun,
            value=found.value,
        )

    def _summary(self, record: StepRecord) -> str:
        """The cosine and norm of a step as text, and whether the norm was too high."""
        seen = [("cosine", record.cosine, ".3f"), ("norm", record.norm, ".3g")]
        parts = [f"{name} {value:{form}}" for name, value, form in seen if not math.isnan(value)]
        if record.constrained:  # `gamma="auto"` is not a bound
            bounded = self.now.method.settings().get("gamma") != "auto"
            parts.append("above the bound" if bounded else "explodes")
        return "  ".join(parts)

    def _finish(self, supply: Supply, last: Batch, stopped: str) -> Result:
        """Statistics before and after, on a held-out batch if there is one."""
        problem, now = self.problem, self.now
        if not wants_statistics(problem):
            check_ranks(self.ranks, now.scales)
            return make_result(problem, now, stopped)
        spare = supply.take(now.method, first=not now.history)
        held_out = spare is not END and supply.rounds == 0
        batch = problem.prepare(spare) if held_out else last
        check_ranks(self.ranks, now.scales)
        warn_of_the_bound(problem, now)
        if batch is None:  # resumed after the last batch of a generator
            return make_result(problem, now, stopped)
        before = measured(problem.at(problem.unit_scales, problem.original), batch, now)
        same = not problem.drawn and torch.equal(now.scales, problem.unit_scales)
        after = before if same else measured(problem.at(now.scales), batch, now)
        size = problem.layout.size(batch)
        return make_result(problem, now, stopped, True, before, after, held_out, size)


def _moves(moved: Tensor, scales: Tensor, tolerance: float) -> bool:
    return not bool(((moved - scales).abs() < tolerance * scales).all())
