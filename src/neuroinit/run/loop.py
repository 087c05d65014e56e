"""One run of the loop: batch by batch, with its errors, its memory, its checkpoint, its result."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.batches import END, Stream, batch_size
from neuroinit.common.errors import GradientError, listed, out_of_memory, warn
from neuroinit.common.progress import Progress
from neuroinit.distributed.ranks import union
from neuroinit.gradients.plan import Plan, share
from neuroinit.gradients.statistics import GradientStats, measure
from neuroinit.methods.base import Initialization
from neuroinit.methods.updates import Position, clamped
from neuroinit.model.problem import Problem
from neuroinit.model.zero_tensors import blocked_by_zeros
from neuroinit.run.about import describe
from neuroinit.run.checkpoint import Checkpoint, read_tensor, written
from neuroinit.run.engine_choice import Room, fitting
from neuroinit.run.result import Result, StepRecord, readable, writable
from neuroinit.sharded.differences import check_differences
from neuroinit.sharded.problem import ShardedProblem
from neuroinit.version import __version__

HELD_GRADIENTS = 4  # for before and after, when memory is short
PATIENCE = 5  # steps without movement before an early stop

OnStep = Callable[[StepRecord], None]


class Run:
    """One run of the loop: scales, the update's state, and the history so far."""

    def __init__(
        self,
        problem: Problem,
        method: Initialization,
        room: Room,
        memory_limit: int | None,
        on_step: OnStep | None,
        checkpoint: Checkpoint,
        states: list[str],
    ) -> None:
        self.problem, self.method, self.on_step = problem, method, on_step
        self.ranks = checkpoint.ranks
        self.checkpoint, self.states, self.given, self.taken = checkpoint, states, method, 0
        self.room, self.memory_limit = room, memory_limit
        self.begun = False
        self.scales, self.state = method.start(problem)
        self.lowest = method.lowest(problem.scaled)
        self.history: list[StepRecord] = []
        self.blocked: list[str] = []
        self.still = self.rounds = 0

    def go(self, batches: Iterable[Any], progress: bool) -> Result:
        """Step until all steps are done, nothing moves any more, or the batches end."""
        stream, batch, stopped = Stream(batches), None, "all steps done"
        for _ in range(self.taken):
            stream.next()
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
                    stopped = "nothing moves any more"
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

    def _save(self, stream: Stream) -> None:
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
                "room": dataclasses.astuple(self.room),
                "blocked": self.blocked,
                "still": self.still,
                "independent": [list(pair) for pair in self.problem.independence.items()],
            }
        )

    def resume(self, found: dict[str, Any] | None) -> None:
        """Go on from what :meth:`_save` wrote."""
        if found is None:
            return
        self.checkpoint.check(found)
        self.taken, self.still = found["taken"], found["still"]
        self.room, self.blocked, self.begun = Room(*found["room"]), found["blocked"], True
        self.scales = read_tensor(found["scales"])
        self.state = {name: read_tensor(data) for name, data in found["state"].items()}
        self.history = [StepRecord(**readable(record)) for record in found["history"]]
        self.method = dataclasses.replace(self.method, **found["resolved"])
        self.problem.independence = dict(found["independent"])

    def _take(self, stream: Stream) -> Any:
        """The next batch; a short one after the first, as loaders end with, is passed over."""
        found = self._next(stream)
        first = not self.history or found is END
        if not first and not self.method.fits(self.problem, batch_size(found)):
            found = self._next(stream)
        return found

    def _next(self, stream: Stream) -> Any:
        """The next global batch: of all ranks."""
        found, self.rounds = union(self.ranks, stream.next(), stream.rounds)
        return found

    def _guarded_step(self, step: int, batch: Any) -> StepRecord:
        """A step whose errors say when they happened, and carry what was reached before."""
        try:
            record = self._fitting_step(step, batch)
        except GradientError as error:
            failed = type(error)(f"Step {step}: {error}")
            failed.result = self._result(None, None, f"step {step} failed", False)
            raise failed from error
        self.history.append(record)
        if self.on_step is not None:
            self.on_step(record)
        return record

    def _fitting_step(self, step: int, batch: Any) -> StepRecord:
        """A step, in ever smaller pieces while memory runs out."""
        while True:
            try:
                with self.problem.ranks.together():
                    if not self.begun:
                        self._begin(batch)
                    self.begun = True
                    return self._step(step, batch)
            except (RuntimeError, MemoryError) as error:
                self._shrink(batch, error)

    def _shrink(self, batch: Any, error: BaseException) -> None:
        """Go on in smaller pieces if memory ran out; any other error is the caller's."""
        if not out_of_memory(error):
            raise error
        plan = self.method.plan(self.problem, batch, self.room.microbatch)
        smaller = self.room.smaller(self.problem, batch, plan)
        if smaller is None:
            raise error
        self.room = smaller
        self.problem.warn_once(
            "Memory ran out: going on in smaller pieces, which is slower. A lower "
            "`memory_limit`, or `engine='stream'` and `microbatch=`, avoids the attempt."
        )

    def _begin(self, batch: Any) -> None:
        """What needs a first batch: automatic settings, the engine, and a look for blocked ones."""
        unit = self.problem.unit_scales
        self.problem.place(unit)
        plan = self.method.plan(self.problem, batch, self.room.microbatch)
        self.method = self.method.resolve(self.problem, batch)
        if not self.method.twice:
            return
        self.problem.place(0.1 * unit)  # the start itself may not be finite
        self.room = self._room(batch, plan)
        if not self.problem.sharded:
            self.blocked = blocked_by_zeros(self.problem, batch)
        if self.blocked:
            self.problem.warn_once(
                f"All-zero tensors keep the gradient from {listed(self.blocked)}: these cannot be "
                "optimized. `reinit_zeros=0.01` gives all-zero tensors a small normal start.",
            )

    def _room(self, batch: Any, plan: Plan) -> Room:
        """What fits on the rank that has least room."""
        if self.room.engine == "differences":
            if isinstance(self.problem, ShardedProblem):
                self.problem.try_spreading(batch)
            check_differences(self.problem, batch, plan, self.scales)
            return self.room
        ranks = self.problem.ranks
        own = share(plan, ranks.rank, ranks.world).plan
        own = own if own.pieces else plan
        room = fitting(self.problem, batch, own, self.room, self.memory_limit)
        engines, sizes = zip(
            *map(json.loads, ranks.texts(json.dumps(dataclasses.astuple(room)))), strict=True
        )
        return Room(max(engines), min((s for s in sizes if s is not None), default=None))

    def _step(self, step: int, batch: Any) -> StepRecord:
        begun = time.perf_counter()
        self.problem.place(self.scales)
        plan = self.method.plan(self.problem, batch, self.room.microbatch)
        position = Position(self.scales, self.state, step / self.method.steps)
        found = self.method.step(self.problem, batch, plan, self.room.engine, position)
        moved, self.state = clamped(found.scales, self.scales, self.lowest), found.state
        self.still = self.still + 1 if _still(moved, self.scales, self.method.tolerance) else 0
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

    def _finish(self, stream: Stream, last: Any, stopped: str) -> Result:
        """Before and after, on a batch that no step has seen if there is one."""
        if not self.problem.has_loss:
            self._check_ranks()
            return self._result(None, None, stopped, False)
        spare = self._take(stream)
        held_out = spare is not END and self.rounds == 0
        batch = self.problem.prepare(spare) if held_out else last
        self._check_ranks()
        before = self._measure(self.problem.unit_scales, batch, self.problem.original)
        after = self._measure(self.scales, batch)
        return self._result(before, after, stopped, held_out, batch_size(batch))

    def _check_ranks(self) -> None:
        self.ranks.check_same(
            "scales at the end",
            json.dumps([scale.hex() for scale in self.scales.tolist()]),
            "The ranks' devices or versions of torch compute differently, or the method looks at "
            "something of its own on every rank. Optimize on one rank and send its result to all.",
        )

    def _measure(
        self, scales: Tensor, batch: Any, values: dict[str, Tensor] | None = None
    ) -> GradientStats | None:
        """The statistics, or ``None`` where there are none: the start may not be finite."""
        self.problem.place(scales, values)
        plan = self.method.measured(self.problem, batch, self.room.microbatch)
        held = HELD_GRADIENTS if self.room.engine == "stream" else None
        try:
            with self.problem.ranks.together():
                return measure(self.problem, batch, plan, held)
        except GradientError:
            return None

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
            engine=self.room.engine if self.method.twice else "none",
            stopped=stopped,
            held_out=held_out,
            blocked=self.blocked,
            drawn=self.problem.drawn,
            versions={"neuroinit": __version__, "torch": str(torch.__version__)},
            about=describe(self.problem.model, samples),
        )


def _summary(record: StepRecord) -> str:
    bound = "above the bound" if record.constrained else "within the bound"
    seen = [("cosine", record.cosine, ".3f"), ("norm", record.norm, ".3g")]
    parts = [f"{name} {value:{form}}" for name, value, form in seen if not math.isnan(value)]
    return f"{'  '.join(parts)}, {bound}" if parts else ""


def _still(moved: Tensor, scales: Tensor, tolerance: float) -> bool:
    return bool(((moved - scales).abs() < tolerance * scales).all())
