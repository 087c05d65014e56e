"""What all trainers need: data that is read without a trace, metrics, and one result for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from neuroinit.common.checks import check_instance
from neuroinit.distributed.ranks import alone
from neuroinit.methods.base import Initialization
from neuroinit.methods.nio.method import NIO
from neuroinit.run.result import Result

PREFIX = "neuroinit/"
CURVES = ("loss", "cosine", "norm", "norm_max", "norm_min")


def checked_method(method: Any) -> Initialization:
    """``NIO()`` for ``None``; anything that is no method is refused before training begins."""
    found: Initialization = NIO() if method is None else method
    check_instance("method", found, Initialization, "a method such as `NIO()`")
    return found


@contextmanager
def undisturbed(loader: Any) -> Iterator[None]:
    """Read from a DataLoader, and let training see the same order of samples as without that.

    A loader's and its samplers' generators, and whatever samplers count (epochs), come back as
    they were. The global random state is :func:`neuroinit.optimize`'s own promise.
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


def metrics(result: Result) -> Iterator[tuple[int, dict[str, float]]]:
    """``(step, values)`` for a logger: every step's record, with before and after at step 0."""
    ends = {
        f"{PREFIX}{name}_{when}": getattr(stats, name)
        for when, stats in (("before", result.before), ("after", result.after))
        if stats is not None
        for name in ("loss", "cosine", "norm", "norm_ratio")
    }
    if not result.history and ends:
        yield 0, ends
    for record in result.history:
        values = {PREFIX + name: record[name] for name in CURVES if math.isfinite(record[name])}
        yield record.step, {**values, **(ends if record.step == 0 else {})}


def once_for_all(
    compute: Callable[[], Result], rank: int, broadcast: Callable[[Any], Any] | None
) -> Result:
    """The first process computes; all get the same result, or the same error.

    Args:
        compute: The optimization.
        rank: Of this process.
        broadcast: ``broadcast(value)`` is the first process's value; ``None`` where there is one.
    """
    if broadcast is None:
        return compute()
    outcome: Any = None
    if rank == 0:
        try:
            with alone():
                outcome = compute()
        except Exception as error:
            broadcast(f"{type(error).__name__}: {error}")
            raise
    outcome = broadcast(outcome)
    if isinstance(outcome, str):
        raise RuntimeError(f"The first process failed to optimize the initialization: {outcome}")
    return outcome  # type: ignore[no-any-return]


def check_alone(model: nn.Module, processes: int) -> None:
    """The first process computes alone, which layers that wait for the others don't allow."""
    waiting = [n for n, m in model.named_modules() if isinstance(m, nn.SyncBatchNorm)]
    if waiting and processes > 1:
        raise ValueError(
            f"`{waiting[0]}` is a SyncBatchNorm, which waits for all {processes} processes, and "
            "the initialization runs in one. Call `neuroinit.nio_(model, loader)` before the model "
            "is given to the trainer."
        )
