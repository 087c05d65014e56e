"""Helpers for all trainers: batches without side effects, metrics, one result for all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from neuroinit.distributed.ranks import alone
from neuroinit.integrations.past import Reason
from neuroinit.run.results.result import Result, StepRecord

PREFIX = "neuroinit/"
CURVES = ("loss", "cosine", "norm", "norm_max", "norm_min")

Broadcast = Callable[[object], object]


@contextmanager
def undisturbed(loader: object) -> Iterator[None]:
    """A context for reading from a DataLoader that does not change the samples of training.

    Its exit restores the random generators of the loader and of its samplers, and the epochs that
    samplers count. :func:`neuroinit.optimize` restores the global random state.
    """
    batch_sampler = getattr(loader, "batch_sampler", None)
    samplers = [getattr(loader, "sampler", None), batch_sampler]
    samplers.append(getattr(batch_sampler, "sampler", None))
    counted = [(vars(s), dict(vars(s))) for s in samplers if hasattr(s, "__dict__")]
    holders = [getattr(holder, "generator", None) for holder in (loader, *samplers)]
    states = [(g, g.get_state()) for g in holders if isinstance(g, torch.Generator)]
    try:
        yield
    finally:
        for attributes, values in counted:
            attributes.clear()
            attributes.update(values)
        for generator, state in states:
            generator.set_state(state)


@contextmanager
def muted(holder: object, *names: str) -> Iterator[None]:
    """A context in which some methods of an object do nothing."""
    attributes = vars(holder)
    own = {name: attributes[name] for name in names if name in attributes}
    attributes.update(dict.fromkeys(names, _nothing))
    try:
        yield
    finally:
        for name in names:
            del attributes[name]
        attributes.update(own)


def _nothing(*args: object, **kwargs: object) -> None:
    """Replaces methods such as ``self.log``."""


def metrics(result: Result) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield ``(step, values)`` for a logger; statistics before and after are at step 0."""
    ends = {
        f"{PREFIX}{name}_{when}": getattr(stats, name)
        for when, stats in (("before", result.before), ("after", result.after))
        if stats is not None
        for name in ("loss", "cosine", "norm", "norm_ratio")
    }
    if not result.history and ends:
        yield 0, ends
    for record in result.history:
        yield record.step, {**curves(record), **(ends if record.step == 0 else {})}


def curves(record: StepRecord, prefix: str = PREFIX) -> dict[str, float]:
    """The finite numbers of a step, by the names under which they are logged."""
    return {prefix + name: record[name] for name in CURVES if math.isfinite(record[name])}


def once_for_all(compute: Callable[[], Result], rank: int, broadcast: Broadcast | None) -> Result:
    """Compute in the first process; return the result, or raise its error, in all processes.

    Args:
        compute: The optimization.
        rank: The rank of this process.
        broadcast: ``broadcast(value)`` returns the value of the first process; ``None`` if there
            is one process.
    """
    if broadcast is None:
        return compute()
    outcome: object = None
    if rank == 0:
        try:
            with alone():
                outcome = compute()
        except Exception as error:
            broadcast(f"{type(error).__name__}: {error}")
            raise
    outcome = broadcast(outcome)
    if not isinstance(outcome, Result):
        raise RuntimeError(f"The first process failed to optimize the initialization: {outcome}")
    return outcome


def leave_alone(reason: Reason | None, rank: int, broadcast: Broadcast | None) -> bool:
    """Whether the first process has a reason to leave the model alone; it reports the reason."""
    if broadcast is not None:  # weights may be loaded in the first process only
        found = broadcast(reason)
        reason = found if isinstance(found, Reason) else None
    if reason is not None and rank == 0:
        reason.report()
    return reason is not None


def check_alone(model: nn.Module, processes: int) -> None:
    """Raise for layers that wait for all processes, because the first one computes alone."""
    waiting = [n for n, m in model.named_modules() if isinstance(m, nn.SyncBatchNorm)]
    if waiting and processes > 1:
        raise ValueError(
            f"`{waiting[0]}` is a SyncBatchNorm, which waits for all {processes} processes, and "
            "the initialization runs in one. Call `neuroinit.nio_(model, loader)` before the model "
            "is given to the trainer."
        )
