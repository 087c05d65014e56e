"""The end of a run: statistics before and after, checks, and the result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.tensors import at_least_float32, fingerprint, fingerprints
from neuroinit.distributed.dtensor import whole
from neuroinit.distributed.ranks import Ranks
from neuroinit.gradients.statistics.both import measure_with_agreement_if_possible
from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.run.loop.state import RunState
from neuroinit.run.results.about import describe
from neuroinit.run.results.result import Result
from neuroinit.version import __version__

FAR_ABOVE = 10.0  # warn if the last norm is above this multiple of the bound
SMALL, TOGETHER = 2**16, 128  # most entries of a small tensor; small tensors hashed together


_MEASURES = ContextVar("runs measure statistics", default=True)


@contextmanager
def without_statistics() -> Iterator[None]:
    """A context in which results have no statistics before and after."""
    token = _MEASURES.set(False)
    try:
        yield
    finally:
        _MEASURES.reset(token)


def wants_statistics(problem: Problem) -> bool:
    """Whether a run measures the gradients before and after."""
    return problem.has_loss and _MEASURES.get()


def measured(point: Point, batch: Batch, now: RunState) -> GradientStats | None:
    """The statistics at a point, or ``None`` if a gradient is zero or not finite."""
    plan = now.method.measured(point.problem, batch, now.schedule.microbatch)
    return measure_with_agreement_if_possible(point, batch, plan, now.schedule.held_gradients)


def make_result(
    problem: Problem,
    now: RunState,
    stopped: str,
    complete: bool = True,
    before: GradientStats | None = None,
    after: GradientStats | None = None,
    held_out: bool = False,
    samples: int | None = None,
) -> Result:
    """The result of a run.

    Args:
        problem: The model and its loss.
        now: The state of the run after its last step.
        stopped: Why the run has ended.
        complete: Whether all ranks have reached the end of the run.
        before: Statistics before the first step.
        after: Statistics after the last step.
        held_out: Whether no step has used the batch of the statistics.
        samples: The number of samples in that batch.
    """
    return Result(
        scales=dict(zip(problem.scaled, now.scales.tolist(), strict=True)),
        history=now.history,
        before=before,
        after=after,
        settings=now.method.settings(),
        engine=now.schedule.used_by(now.method).name,
        stopped=stopped,
        held_out=held_out,
        blocked=now.blocked,
        drawn=problem.drawn,
        versions={"neuroinit": __version__, "torch": str(torch.__version__)},
        digests=_digests(problem, now.scales, complete),
        about=describe(problem.model, samples),
    )


def _digests(problem: Problem, scales: Tensor, complete: bool) -> dict[str, list[int]]:
    """Hashes of the scaled tensors before and after the result is applied."""
    if problem.sharded and not complete:
        return {}  # gathering the values would wait for ranks that have failed
    factors = dict(zip(problem.scaled, scales.tolist(), strict=True))
    names = [n for n in problem.scaled if n not in problem.drawn]
    found: dict[str, list[int]] = {}
    for group in _hashed_together(problem, names):
        own = {n: whole(problem.parameters[n].detach()) for n in group}
        changed = [n for n in group if factors[n] != 1]
        scaled = [(at_least_float32(own[n]) * factors[n]).to(own[n]) for n in changed]
        both = [*own.values(), *scaled]
        hashes = fingerprints(both) if len(group) > 1 else [fingerprint(t) for t in both]
        before = dict(zip(group, hashes, strict=False))
        after = before | dict(zip(changed, hashes[len(group) :], strict=True))
        found |= {n: [before[n], after[n]] for n in group}
    return {n: found[n] for n in names}


def _hashed_together(problem: Problem, names: list[str]) -> list[list[str]]:
    """Group the names of small tensors; each large tensor is a group alone, to save memory."""
    small = [n for n in names if problem.parameters[n].numel() <= SMALL]
    alone = [[n] for n in names if problem.parameters[n].numel() > SMALL]
    return [small[i : i + TOGETHER] for i in range(0, len(small), TOGETHER)] + alone


def check_ranks(ranks: Ranks, scales: Tensor) -> None:
    """Raise if the scales differ between ranks."""
    ranks.check_same(
        "scales at the end",
        json.dumps([scale.hex() for scale in scales.tolist()]),
        "The ranks' devices or versions of torch compute differently, or the method depends on "
        "the rank. Optimize on one rank and send its result to all.",
    )


def warn_of_the_bound(problem: Problem, now: RunState) -> None:
    """Warn if the gradient norm of the last step was far above the bound ``gamma``."""
    gamma = now.method.settings().get("gamma")
    last = now.history[-1] if now.history else None
    if last is None or not last.constrained:
        return
    if isinstance(gamma, (int, float)) and last.norm > FAR_ABOVE * gamma:
        problem.warn_once(
            f"The gradient norm is {last.norm:.3g} after {len(now.history)} steps, far above "
            f"the bound `gamma = {gamma:.3g}`. Use more `steps`, or a larger `lr`."
        )


def conclusion(result: Result) -> str:
    """A line about the result for the log."""
    name, steps = result.settings.get("method", "Initialization"), len(result.history)
    line = f"{name}: {steps} steps ({result.stopped}), engine {result.engine}"
    if result.before is None or result.after is None:
        return line
    return f"{line}, gradient norm {result.before.norm:.3g} -> {result.after.norm:.3g}"
