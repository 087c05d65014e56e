"""The optimization loop: one step per batch, errors, memory, checkpoints, the result."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import END, Batch, BatchStream
from neuroinit.common.errors import GradientError, NonFiniteError, listed, out_of_memory, warn
from neuroinit.common.progress import Progress
from neuroinit.common.signals import allowed
from neuroinit.common.tensors import at_least_float32, fingerprint
from neuroinit.distributed.joined_batches import union
from neuroinit.gradients.statistics import GradientStats, measure
from neuroinit.methods.base import Initialization
from neuroinit.methods.updates import Position, clamped
from neuroinit.model.finite import why_not_finite
from neuroinit.model.problem import Problem
from neuroinit.model.zero_tensors import blocked_by_zeros
from neuroinit.run.about import describe
from neuroinit.run.checkpoint import Checkpoint, read_tensor, written
from neuroinit.run.engine_choice import STREAM, Schedule, choose_schedule
from neuroinit.run.result import Result, StepRecord, readable, writable
from neuroinit.version import __version__

FAR_ABOVE = 10.0  # a norm above this multiple of the bound at the end is worth a warning
PATIENCE = 5  # steps without movement before an early stop

OnStep = Callable[[StepRecord], None]


class Run:
    """One run of a method on a problem.

    Args:
        problem: The model and its loss.
        method: What is run.
        schedule: How a step is computed, as far as the user has said.
        memory_limit: Most bytes of extra memory; ``None`` for a share of what is free.
        on_step: Called with the record of every step.
        checkpoint: Where the state is saved.
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
        self.problem, self.method, self.on_step = problem, method, on_step
        self.ranks = checkpoint.ranks
        self.checkpoint, self.states, self.given, self.taken = checkpoint, states, method, 0
        self.schedule, self.memory_limit = schedule, memory_limit
        self.begun = False
        self.scales, self.state = method.start(problem)
        self.lowest = method.lowest(problem.scaled)
        self.history: list[StepRecord] = []
        self.blocked: list[str] = []
        self.still = self.rounds = 0

    def go(self, batches: Iterable[Batch], progress: bool) -> Result:
        """Step until all steps are done, the scales stop changing, or the batches end."""
        stream, batch, stopped = BatchStream(batches), None, "all steps done"
        for _ in range(self.taken):
            self._own(stream)
        with Progress(type(self.method).__name__, self.method.steps, progress) as bar:
            for step in range(len(self.history), self.method.steps):
                found = self._take(stream)
                if found is END:
                    stopped = f"the batches ended, {self.method.steps} steps were wanted"
                    break
                batch = self.problem.prepare(found)
                record = self._guarded_step(step, batch)
                bar.show(step + 1, _summary(record))
                if self.still >= PATIENCE:
                    stopped = "the scales no longer change"
                    break
                if step + 1 < self.method.steps and self.checkpoint.due(step + 1):
                    self._save(stream)
        if len(self.history) < self.method.steps and stream.ended:
            warn(
                f"The batches ended after {len(self.history)} of {self.method.steps} steps; the "
                "scales are those of the last one. Pass a list or a DataLoader to go on.",
            )
        result = self._finish(stream, batch, stopped)
        self.checkpoint.remove()
        return result

    def _save(self, stream: BatchStream) -> None:
        """All that the next step depends on."""
        fields = {f.name for f in dataclasses.fields(self.method)}
        resolved = {n: getattr(self.method, n) for n in fields}
        self.checkpoint.write(
            {
                "random": self.states,
                "taken": stream.taken,
                "scales": written(self.scales),
                "state": {name: written(tensor) for name, tensor in self.state.items()},
                "history": [writable(record) for record in self.history],
                "resolved": {n: v for n, v in resolved.items() if v != getattr(self.given, n)},
                "schedule": self.schedule.to_json(),
                "blocked": self.blocked,
                "still": self.still,
                "independent": [list(pair) for pair in self.problem.traits.independent.items()],
            }
        )

    def resume(self) -> None:
        """Continue from what :meth:`_save` wrote, if there is something.

        With the same options a step is computed as before. With others, for example less memory,
        the schedule is chosen again.
        """
        found = self.checkpoint.found
        if found is None:
            return
        with self.checkpoint.naming():
            self.taken, self.still = int(found["taken"]), int(found["still"])
            self.scales = read_tensor(found["scales"])
            self.state = {name: read_tensor(data) for name, data in found["state"].items()}
            self.history = [StepRecord(**readable(record)) for record in found["history"]]
            self.method = dataclasses.replace(self.method, **found["resolved"])
            self.problem.traits.independent = dict(found["independent"])
            self.blocked = found["blocked"]
            if self.checkpoint.same_options:
                self.schedule, self.begun = Schedule.from_json(found["schedule"]), True

    def _take(self, stream: BatchStream) -> Any:
        """The next batch; one that is too small is skipped, such as the last of a data loader."""
        found = self._next(stream)
        if found is END or self.method.fits(self.problem, self.problem.layout.size(found)):
            return found
        if not self.history:
            return self._join(found, stream)
        return self._join(self._next(stream), stream)

    def _join(self, found: Batch, stream: BatchStream) -> Batch:
        """A batch with enough samples to cut, joined from several if one is too small."""
        layout, parts = self.problem.layout, [found]
        while found is not END and layout.size(found) < self.method.least_samples:
            following = self._next(stream)
            if following is END or (self.rounds and not self.history):
                break  # there are no more samples than these
            try:
                found = layout.join([*parts, following])
            except ValueError:  # they differ in length
                return parts[0]
            parts.append(following)
            if layout.size(found) >= self.method.least_samples:
                self.problem.warn_once(
                    f"Batches of {layout.size(parts[0])} samples are too small for "
                    f"{self.method.least_samples} sub-batches: {len(parts)} are joined. Pass "
                    "larger batches, or `sub_batches=`."
                )
        return found

    def _next(self, stream: BatchStream) -> Any:
        """The next batch of all ranks together."""
        found, self.rounds = union(self.ranks, self._own(stream), stream.rounds)
        return found

    def _own(self, stream: BatchStream) -> Any:
        """The next batch of this rank."""
        with allowed():
            found = stream.next()
        if stream.taken == 1:
            self.checkpoint.identify_data(found)
        return found

    def _guarded_step(self, step: int, batch: Batch) -> StepRecord:
        """A step whose errors name the step and carry the result so far."""
        try:
            record = self._fitting_step(step, batch)
        except GradientError as error:
            reason = why_not_finite(batch) if isinstance(error, NonFiniteError) else ""
            failed = type(error)(f"Step {step}: {error}{reason}")
            failed.result = self._result(None, None, f"step {step} failed", False)
            raise failed from error
        self.history.append(record)
        if self.on_step is not None:
            with allowed():
                self.on_step(record)
        return record

    def _fitting_step(self, step: int, batch: Batch) -> StepRecord:
        """A step; whenever memory runs out it is repeated in smaller pieces."""
        while True:
            try:
                with self.problem.ranks.together():
                    if not self.begun:
                        self._begin(batch)
                    self.begun = True
                    return self._step(step, batch)
            except (RuntimeError, MemoryError) as error:
                self._shrink(batch, error)

    def _shrink(self, batch: Batch, error: BaseException) -> None:
        """Choose a schedule that needs less memory if memory ran out; raise any other error."""
        if not out_of_memory(error):
            raise error
        plan = self.method.plan(self.problem, batch, self.schedule.microbatch)
        smaller = self.schedule.with_less_memory(self.problem, batch, plan)
        if smaller is None:
            raise error
        self.schedule = smaller
        self.problem.warn_once(
            "Memory ran out: going on in smaller pieces, which is slower. A lower "
            "`memory_limit`, or `engine='stream'` and `microbatch=`, avoids the attempt."
        )

    def _begin(self, batch: Batch) -> None:
        """What needs a first batch: automatic settings, the engine, and blocked parameters."""
        problem = self.problem
        self.method = self.method.for_samples(problem, problem.layout.size(batch))
        plan = self.method.plan(problem, batch, self.schedule.microbatch)
        self.method = self.method.resolve(problem, batch)
        if not self.method.second_order:
            return
        engine = self.schedule.engine
        if engine is None or engine.exact:
            small = problem.at(0.1 * problem.unit_scales)  # the start itself may not be finite
            self.schedule = choose_schedule(small, batch, plan, self.schedule, self.memory_limit)
        else:
            engine.prepare(problem, batch, plan, self.scales)
        if not problem.sharded:
            self.blocked = blocked_by_zeros(problem, batch)
        if self.blocked:
            problem.warn_once(
                f"All-zero tensors block the gradient of {listed(self.blocked)}: these cannot be "
                "optimized. `reinit_zeros=0.01` gives all-zero tensors a small normal start.",
            )

    def _step(self, step: int, batch: Batch) -> StepRecord:
        begun = time.perf_counter()
        plan = self.method.plan(self.problem, batch, self.schedule.microbatch)
        position = Position(self.scales, self.state, step / self.method.steps)
        engine = self.schedule.engine or STREAM  # not chosen: the method needs none
        found = self.method.step(self.problem, batch, plan, engine, position)
        moved, self.state = clamped(found.scales, self.scales, self.lowest), found.state
        moves = _moves(moved, self.scales, self.method.tolerance)
        self.still = 0 if moves else self.still + 1
        self.scales = moved
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

    def _finish(self, stream: BatchStream, last: Any, stopped: str) -> Result:
        """Statistics before and after, on a held-out batch if there is one."""
        if not self.problem.has_loss:
            self._check_ranks()
            return self._result(None, None, stopped, False)
        spare = self._take(stream)
        held_out = spare is not END and self.rounds == 0
        batch = self.problem.prepare(spare) if held_out else last
        self._check_ranks()
        self._warn_of_the_bound()
        before = self._measure(self.problem.unit_scales, batch, self.problem.original)
        after = self._measure(self.scales, batch)
        return self._result(before, after, stopped, held_out, self.problem.layout.size(batch))

    def _warn_of_the_bound(self) -> None:
        """Warn if the last step was far above the bound that the method was given."""
        gamma = getattr(self.method, "gamma", None)
        last = self.history[-1] if self.history else None
        if last is None or not last.constrained or not isinstance(gamma, (int, float)):
            return
        if last.norm > FAR_ABOVE * gamma:
            self.problem.warn_once(
                f"The gradient norm is {last.norm:.3g} after {len(self.history)} steps, far above "
                f"the bound `gamma = {gamma:.3g}`. Use more `steps`, or a larger `lr`."
            )

    def _check_ranks(self) -> None:
        self.ranks.check_same(
            "scales at the end",
            json.dumps([scale.hex() for scale in self.scales.tolist()]),
            "The ranks' devices or versions of torch compute differently, or the method looks at "
            "something of its own on every rank. Optimize on one rank and send its result to all.",
        )

    def _measure(
        self, scales: Tensor, batch: Batch, values: dict[str, Tensor] | None = None
    ) -> GradientStats | None:
        """The statistics, or ``None`` if a gradient is zero or not finite."""
        plan = self.method.measured(self.problem, batch, self.schedule.microbatch)
        held = self.schedule.engine.held_gradients if self.schedule.engine else None
        try:
            with self.problem.ranks.together():
                return measure(self.problem.at(scales, values), batch, plan, held)
        except GradientError:
            return None

    def _digests(self) -> dict[str, list[int]]:
        """Hashes of the scaled tensors before and after the result is applied."""
        problem, found = self.problem, {}
        if problem.sharded:
            return {}
        for name, scale in zip(problem.scaled, self.scales.tolist(), strict=True):
            if name not in problem.drawn:
                own = problem.parameters[name].detach()
                after = (at_least_float32(own) * scale).to(own)
                found[name] = [fingerprint(own), fingerprint(after)]
        return found

    def _engine_name(self) -> str:
        engine = self.schedule.engine
        return engine.name if engine is not None and self.method.second_order else "none"

    def _result(
        self,
        before: GradientStats | None,
        after: GradientStats | None,
        stopped: str,
        held_out: bool,
        samples: int | None = None,
    ) -> Result:
        return Result(
            scales=dict(zip(self.problem.scaled, self.scales.tolist(), strict=True)),
            history=self.history,
            before=before,
            after=after,
            settings=self.method.settings(),
            engine=self._engine_name(),
            stopped=stopped,
            held_out=held_out,
            blocked=self.blocked,
            drawn=self.problem.drawn,
            versions={"neuroinit": __version__, "torch": str(torch.__version__)},
            digests=self._digests(),
            about=describe(self.problem.model, samples),
        )


def _summary(record: StepRecord) -> str:
    bound = "above the bound" if record.constrained else "within the bound"
    seen = [("cosine", record.cosine, ".3f"), ("norm", record.norm, ".3g")]
    parts = [f"{name} {value:{form}}" for name, value, form in seen if not math.isnan(value)]
    return f"{'  '.join(parts)}, {bound}" if parts else ""


def _moves(moved: Tensor, scales: Tensor, tolerance: float) -> bool:
    return not bool(((moved - scales).abs() < tolerance * scales).all())
