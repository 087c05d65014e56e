"""How much memory the graphs of a step take, and how much there is."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from neuroinit.gradients import check_graph, first_order_graph
from neuroinit.plan import Plan
from neuroinit.problem import Problem

# `keep` may fill this share of the free memory: the second backward needs about as much again.
SHARE = 0.4


def fitting_engine(problem: Problem, batch: Any, plan: Plan) -> str:
    """``"keep"`` while the graphs of all pieces fit, else ``"stream"``; measured on one piece.

    Every piece also has a gradient, its copy as a flat vector, and a direction. On the way, raises
    if the model cannot be differentiated twice.
    """
    sizes = [stop - start for start, stop in plan.pieces]
    largest = sizes.index(max(sizes))
    bytes_kept = graph_bytes(problem, batch, plan, largest)
    if not plan.whole:
        bytes_kept = bytes_kept * sum(sizes) // max(sizes)
    vectors = sum(t.numel() * t.element_size() for t in problem.theta(problem.differentiated))
    bytes_kept += 3 * len(sizes) * vectors
    return "keep" if bytes_kept <= SHARE * free_memory(problem.device) else "stream"


def graph_bytes(problem: Problem, batch: Any, plan: Plan, piece: int) -> int:
    """Bytes that autograd saves for one piece's gradient with its graph, each storage once."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:  # sparse gradients are small and have no storage
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        check_graph(problem, first_order_graph(problem, batch, plan, piece))
    return sum(seen.values())


def free_memory(device: torch.device) -> int:
    """Free bytes on a device; without a way to know, a very large number."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu" and os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as lines:
            table = dict(line.split(":", 1) for line in lines)
        return int(table["MemAvailable"].split()[0]) * 1024
    if device.type == "cpu" and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 2**62
