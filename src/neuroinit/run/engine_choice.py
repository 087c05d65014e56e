"""Chooses the engine and the micro-batch, from the memory that the graphs of a step need."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.errors import named_operator
from neuroinit.common.process.accelerator import free_device_memory
from neuroinit.common.sealed_json import JSON, of_kind
from neuroinit.distributed.ranks import Ranks
from neuroinit.gradients.engines import Engine, Keep, Stream, Unused
from neuroinit.gradients.passes.pieces import one_by_one
from neuroinit.gradients.passes.planned import streamed_pieces, streamed_samples, takes_copies
from neuroinit.gradients.passes.trials import may_be_separable, samples_are_independent
from neuroinit.gradients.plan import Plan, share_of
from neuroinit.methods.base import Initialization
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.sharded.differences import Differences

AUTO = "auto"
KEEP, STREAM, UNUSED = Keep(), Stream(), Unused()
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (KEEP, STREAM, Differences())}
LEAST_MEMORY_FIRST = (STREAM, KEEP)

CPU_SHARE = 0.5  # share of the free memory that is used; other processes need some, too
DEVICE_SHARE = 0.8  # the same for an accelerator
WORK = 3.0  # the second backward through a graph needs about three times the graph's memory more
PEAK = 2.5  # peak memory over that of the graphs, if one pass computes several pieces
UNKNOWN = 2**62  # bytes, if the free memory is not known
CGROUP = Path("/sys/fs/cgroup")  # the memory limits of a container


@dataclass(frozen=True)
class Schedule:
    """How a step is computed.

    Args:
        engine: The engine; ``None`` if none was chosen yet.
        microbatch: Most samples in a pass; ``None`` for no limit.
    """

    engine: Engine | None
    microbatch: int | None = None

    @property
    def streams(self) -> bool:
        """Whether an exact engine was chosen that holds one graph at a time."""
        return self.engine is not None and self.engine.exact and not self.engine.keeps_graphs

    @property
    def held_gradients(self) -> int | None:
        """Most gradients that statistics hold at once; ``None`` for all."""
        return None if self.engine is None else self.engine.held_gradients

    def differentiates_graphs(self, method: Initialization) -> bool:
        """Whether a method differentiates gradients, and not by finite differences."""
        return method.second_order and (self.engine is None or self.engine.exact)

    def used_by(self, method: Initialization) -> Engine:
        """The engine that a method uses, which may be ``UNUSED``."""
        return self.engine if method.second_order and self.engine is not None else UNUSED

    def to_json(self) -> list[str | int | None]:
        """``[engine name, microbatch]``."""
        return [None if self.engine is None else self.engine.name, self.microbatch]

    @classmethod
    def from_json(cls, values: JSON) -> Schedule:
        """The inverse of :meth:`to_json`."""
        name, microbatch = of_kind(list, values)
        return cls(None if name is None else ENGINES[name], microbatch)

    def with_less_memory(self, problem: Problem, batch: Batch, plan: Plan) -> Schedule | None:
        """The next schedule that needs less memory; ``None`` if there is none."""
        if self.engine is not None and self.engine.keeps_graphs:
            return Schedule(STREAM, self.microbatch)
        largest = plan.largest
        if may_be_separable(problem):
            largest = max(largest, streamed_samples(plan))
        if largest == 1 or plan.one_forward or not samples_are_independent(problem, batch):
            return None
        return Schedule(STREAM, largest // 2)


def choose_schedule(
    point: Point, batch: Batch, plan: Plan, wanted: Schedule, memory_limit: int | None
) -> Schedule:
    """The schedule that fits into the memory of every rank."""
    ranks = point.problem.ranks
    own = share_of(plan, ranks.rank, ranks.world).plan
    found = _fitting(point, batch, own if own.pieces else plan, wanted, memory_limit)
    return common_schedule(ranks, found)


def common_schedule(ranks: Ranks, found: Schedule) -> Schedule:
    """Of the schedules that the ranks have found, the engine and pieces with the least memory."""
    texts = ranks.texts(json.dumps(found.to_json()))
    all_found = [Schedule.from_json(json.loads(text)) for text in texts]
    engines = {schedule.engine for schedule in all_found}
    sizes = [s.microbatch for s in all_found if s.microbatch is not None]
    engine = next((e for e in LEAST_MEMORY_FIRST if e in engines), found.engine)
    return Schedule(engine, min(sizes, default=None))


def _fitting(
    point: Point, batch: Batch, plan: Plan, wanted: Schedule, memory_limit: int | None
) -> Schedule:
    """The first of keep, stream, and stream in micro-batches that fits into memory.

    The memory of a graph is measured on one piece. `keep` also holds three vectors a piece: its
    gradient, a flat copy of it, and its direction.
    """
    problem = point.problem
    wanted = _streamed_in_quarters(problem, batch, plan, wanted)
    if wanted.engine is not None:
        return wanted
    need = _Need(point, batch, plan, wanted)
    share = CPU_SHARE if problem.device.type == "cpu" else DEVICE_SHARE
    limit = share * free_memory(problem.device) if memory_limit is None else memory_limit
    if need.kept() <= limit:
        return Schedule(KEEP, wanted.microbatch)
    if need.streamed(need.samples) <= limit:
        return _streamed_in_quarters(problem, batch, plan, Schedule(STREAM, wanted.microbatch))
    microbatch = wanted.microbatch
    if need.samples > 1 and not plan.one_forward and samples_are_independent(problem, batch):
        microbatch = need.samples_within(limit)
    if need.streamed(microbatch or need.samples) > limit:
        found = "available" if memory_limit is None else "of `memory_limit`"
        problem.warn_once(
            f"A step needs about {_megabytes(need.streamed(microbatch or need.samples))}, more "
            f"than {_megabytes(limit)} {found}. Smaller pieces are not possible; use a smaller "
            "batch if memory runs out. The step is tried nevertheless.",
        )
    return Schedule(STREAM, microbatch)


def _trial_piece(plan: Plan, wanted: Schedule) -> Interval:
    """The piece whose memory is measured: the largest, or a micro-batch of it."""
    start, stop = max(plan.pieces, key=lambda piece: piece[1] - piece[0])
    if wanted.streams and wanted.microbatch:
        stop = min(stop, start + wanted.microbatch)
    return start, stop


class _Need:
    """Estimates the bytes that a step needs, from the graph of its largest piece."""

    def __init__(self, point: Point, batch: Batch, plan: Plan, wanted: Schedule) -> None:
        problem = point.problem
        self.sizes, self.plan = [stop - start for start, stop in plan.pieces], plan
        self.graph = graph_bytes(point, batch, _trial_piece(plan, wanted), plan.one_forward)
        tensors = point.tensors(problem.differentiated)
        self.vector = sum(t.numel() * t.element_size() for t in tensors)
        self.copied = takes_copies(problem, plan) and may_be_separable(problem)
        apart = plan.one_forward and not self.copied
        self.together = not apart and may_be_separable(problem)  # one pass computes several pieces
        self.samples, self.vectors = plan.largest, 4 * self.vector
        if self.together and not self.copied:
            self.samples = max(self.samples, streamed_samples(plan))
            pieces = max(1, min(streamed_pieces(problem), self.samples // min(self.sizes)))
            self.vectors = (1 + 3 * pieces) * self.vector

    def kept(self) -> float:
        """Bytes of `keep`; in one forward pass, each further graph adds half of the first."""
        count = len(self.sizes)
        share = (1 + count) / 2 if self.plan.one_forward else sum(self.sizes) / self.plan.largest
        share = count if self.copied else share
        graphs = self.graph * share
        peak = PEAK * graphs if self.together else graphs + WORK * self.graph
        return peak + 3 * count * self.vector

    def streamed(self, samples: int) -> float:
        """Bytes of `stream` with at most ``samples`` samples in a pass."""
        return self._per_sample * samples + self.vectors

    def samples_within(self, limit: float) -> int:
        """The most samples in a pass with which `stream` needs at most ``limit`` bytes."""
        fits = int(max(limit - self.vectors, 0) / self._per_sample)
        return max(1, min(fits, self.samples))

    @property
    def _per_sample(self) -> float:
        return (1 + WORK) * self.graph / self.plan.largest


def _streamed_in_quarters(problem: Problem, batch: Batch, plan: Plan, wanted: Schedule) -> Schedule:
    """For `stream`, a micro-batch of a quarter of the batch: about a training step's memory."""
    most = streamed_samples(plan)
    streams = wanted.streams and wanted.microbatch is None
    cuttable = streams and plan.largest > most and not plan.one_forward
    if not cuttable or not samples_are_independent(problem, batch):
        return wanted
    return Schedule(STREAM, most)


def graph_bytes(point: Point, batch: Batch, piece: tuple[int, int], one_forward: bool) -> int:
    """Bytes that autograd saves for the gradient of one piece with its graph."""
    own = {t.untyped_storage().data_ptr() for t in point.values.values()}
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:  # sparse gradients are small and have no storage
            address, size = _memory(tensor)
            seen[address] = size
        return tensor.detach()  # saving the output itself would be a reference cycle

    try:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            _differentiate(point, batch, piece, one_forward)
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
        _differentiate(point, batch, piece, one_forward)  # `torch.func.grad` in the loss
    return sum(size for address, size in seen.items() if address not in own)


def _differentiate(point: Point, batch: Batch, piece: Interval, one_forward: bool) -> None:
    """Compute the gradient of one piece with its graph. Raises if it has no double backward."""
    names = point.problem.differentiated
    with point.session(second_order=True, scale_variables=True) as session, named_operator():
        list(one_by_one(session, batch, [piece], names, True, one_forward))


def _memory(tensor: Tensor) -> tuple[int, int]:
    """The address of a tensor's storage and its bytes."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:  # a tensor of `torch.func.jvp` has no storage
        return id(tensor), tensor.numel() * tensor.element_size()


def _megabytes(count: float) -> str:
    return f"{count / 2**20:.1f} MB"


def free_memory(device: torch.device) -> int:
    """Free bytes on a device; a very large number if they cannot be determined."""
    if device.type != "cpu":
        free = free_device_memory(device)
        return UNKNOWN if free is None else free
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as lines:
            table = dict(line.split(":", 1) for line in lines)
        return min(int(table["MemAvailable"].split()[0]) * 1024, _free_in_container())
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return UNKNOWN


def _free_in_container() -> int:
    """Free bytes of the container that this process runs in, if it has a limit."""
    try:
        most = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
    except OSError:
        return UNKNOWN
    return UNKNOWN if most == "max" else max(0, int(most) - used)
