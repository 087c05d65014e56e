"""The state of a run: everything that the next step depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from neuroinit.common.sealed_json import JSON, of_kind, plain, read_record
from neuroinit.methods.base import Initialization
from neuroinit.methods.updates import State
from neuroinit.run.engine_choice import Schedule
from neuroinit.run.loop.checkpoint import read_tensor, written
from neuroinit.run.results.result import StepRecord


@dataclass
class RunState:
    """The state of a run.

    Args:
        method: The method; its automatic settings are replaced on the first batch.
        schedule: Engine and micro-batch; an automatic engine is chosen on the first batch.
        scales: The scales, float64 on the CPU.
        state: The state of the method.
        history: A record of every step.
        blocked: Names of tensors whose gradient is zero because of an all-zero tensor.
        still: Number of steps since a scale has last changed.
        begun: Whether automatic settings and the engine have been determined.
    """

    method: Initialization
    schedule: Schedule
    scales: Tensor
    state: State
    history: list[StepRecord] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    still: int = 0
    begun: bool = False

    def to_json(self, given: Initialization) -> dict[str, JSON]:
        """The state for a checkpoint; of the method, the fields that differ from ``given``."""
        fields = {f.name for f in dataclasses.fields(self.method)}
        resolved = {n: getattr(self.method, n) for n in fields}
        return {
            "scales": written(self.scales),
            "state": {name: written(tensor) for name, tensor in self.state.items()},
            "history": [plain(dict(record)) for record in self.history],
            "resolved": {n: v for n, v in resolved.items() if v != getattr(given, n)},
            "schedule": self.schedule.to_json(),
            "blocked": self.blocked,
            "still": self.still,
        }

    def restore(self, found: Mapping[str, JSON], same_options: bool) -> None:
        """Continue from the values of :meth:`to_json`.

        With the same options the schedule is restored. With others, for example another memory
        limit, it is chosen again.
        """
        self.scales = read_tensor(found["scales"])
        state = of_kind(dict, found["state"])
        self.state = {name: read_tensor(data) for name, data in state.items()}
        self.history = [read_record(StepRecord, each) for each in of_kind(list, found["history"])]
        self.method = dataclasses.replace(self.method, **of_kind(dict, found["resolved"]))
        self.blocked, self.still = of_kind(list, found["blocked"]), of_kind(int, found["still"])
        if same_options:
            self.schedule, self.begun = Schedule.from_json(found["schedule"]), True
