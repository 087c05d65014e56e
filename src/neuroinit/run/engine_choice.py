"""How much memory the graphs of a step take, and how much there is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neuroinit.gradients.backward import check_graph, first_order_graph
from neuroinit.gradients.independence import are_independent
from neuroinit.gradients.pieces import few, may_tell_pieces, quarter
from neuroinit.gradients.plan import Plan
from neuroinit.model.problem import Problem

SHARE = {"cpu": 0.5}  # of the free memory may be filled by default: others live on a CPU, too
DEVICE_SHARE = 0.8
WORK = 3.0  # the second backward through a graph needs about three times as much again
PEAK = 2.5  # of the graphs, where one pass is taken of several pieces
UNKNOWN = 2**62
CGROUP = Path("/sys/fs/cgroup")  # where a container finds its own limits


@dataclass(frozen=True)
class Room:
    """How a step is computed: the engine, and the most samples at once."""

    engine: str
    microbatch: int | None = None

    def smaller(self, problem: Problem, batch: Any, plan: Plan) -> Room | None:
        """The next way that needs less memory; ``None`` if there is none."""
        if self.engine == "keep":
            return Room("stream", self.microbatch)
        largest = max(stop - start for start, stop in plan.pieces)
        if may_tell_pieces(problem):
            largest = max(largest, quarter(batch, plan))
        if largest == 1 or plan.whole or not are_independent(problem, batch):
            return None
        return Room("stream", largest // 2)


def fitting(
    problem: Problem, batch: Any, plan: Plan, room: Room, memory_limit: int | None = None
) -> Room:
    """Fill in ``engine="auto"``: keep, stream, or stream in micro-batches, whichever fits first.

    Measured on the graph of one piece. Every kept piece also has a gradient, its copy as a flat
    vector, and a direction. On the way, raises if the model cannot be differentiated twice.

    Args:
        problem: The model and its loss, at scales where they are finite.
        batch: A prepared batch.
        plan: Its pieces.
        room: What the user asked for.
        memory_limit: Most bytes of extra memory; by default a share of what is free.
    """
    sizes = [stop - start for start, stop in plan.pieces]
    start, stop = plan.pieces[sizes.index(max(sizes))]
    room = _quartered(problem, batch, plan, room)
    if room.engine == "stream" and room.microbatch:  # the trial is to be no larger than a step
        stop = min(stop, start + room.microbatch)
    trial = Plan(((start, stop),), plan.weights[:1, :1], plan.whole)
    piece = graph_bytes(problem, batch, trial, 0)
    if room.engine != "auto":
        return room
    share = SHARE.get(problem.device.type, DEVICE_SHARE)
    limit = share * free_memory(problem.device) if memory_limit is None else memory_limit
    vector = sum(t.numel() * t.element_size() for t in problem.theta(problem.differentiated))
    # with `whole` the forward pass is shared: about half of every further graph
    graphs = piece * ((1 + len(sizes)) / 2 if plan.whole else sum(sizes) / max(sizes))
    together = not plan.whole and may_tell_pieces(problem)  # then several pieces are a pass
    kept = PEAK * graphs if together else graphs + WORK * piece
    if kept + 3 * len(sizes) * vector <= limit:
        return Room("keep", room.microbatch)
    largest, vectors = max(sizes), 4 * vector
    if together:
        largest = max(largest, quarter(batch, plan))
        vectors = (1 + 3 * max(1, min(few(problem), largest // min(sizes)))) * vector
    sample = (1 + WORK) * piece / max(sizes)
    needed = sample * largest + vectors
    if needed <= limit:
        return _quartered(problem, batch, plan, Room("stream", room.microbatch))
    if largest > 1 and not plan.whole and are_independent(problem, batch):
        fits = int(max(limit - vectors, 0) / sample)
        room = Room("stream", max(1, min(fits, largest)))
        needed = sample * (room.microbatch or 1) + 4 * vector
    if needed > limit:
        problem.warn_once(
            f"A step needs about {_megabytes(needed)}, more than "
            f"{_megabytes(limit)} {'to be had' if memory_limit is None else 'of `memory_limit`'}. "
            "Smaller pieces than these are not possible, a smaller batch is; trying all the same.",
        )
    return Room("stream", room.microbatch)


def _quartered(problem: Problem, batch: Any, plan: Plan, room: Room) -> Room:
    """`stream` takes a quarter of the batch at most: that is about a training step's memory."""
    most = quarter(batch, plan)
    larger = any(stop - start > most for start, stop in plan.pieces)
    if room != Room("stream") or not larger or plan.whole or not are_independent(problem, batch):
        return room
    return Room("stream", most)


def graph_bytes(problem: Problem, batch: Any, plan: Plan, piece: int) -> int:
    """Bytes that autograd saves for one piece's gradient with its graph, each storage once."""
    own = {t.untyped_storage().data_ptr() for t in problem.theta(list(problem.parameters))}
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:  # sparse gradients are small and have no storage
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that holds itself would never be freed

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        check_graph(problem, first_order_graph(problem, batch, plan, piece))
    return sum(size for address, size in seen.items() if address not in own)


def _megabytes(count: float) -> str:
    return f"{count / 2**20:.1f} MB"


def free_memory(device: torch.device) -> int:
    """Free bytes on a device; without a way to know, a very large number."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu" and os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as lines:
            table = dict(line.split(":", 1) for line in lines)
        return min(int(table["MemAvailable"].split()[0]) * 1024, _container())
    if device.type == "cpu" and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return UNKNOWN


def _container() -> int:
    """Free bytes of the container that this process lives in, if it has a limit."""
    try:
        most = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
    except OSError:
        return UNKNOWN
    return UNKNOWN if most == "max" else max(0, int(most) - used)
