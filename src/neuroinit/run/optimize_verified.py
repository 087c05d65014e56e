"""Runs a method, then verifies its result by short trainings with the user's optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import cast

from torch import nn

from neuroinit.common.batches import Batch
from neuroinit.common.errors import warn
from neuroinit.common.layout import batch_layout
from neuroinit.distributed.fsdp import is_sharded_model
from neuroinit.methods.base import Initialization
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.nio import NIO
from neuroinit.methods.nio.common_factor import CommonFactor
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.model.arguments.optimizers import OptimizerLike
from neuroinit.model.arguments.validation import check_batches
from neuroinit.model.parameters.selection import unwrap
from neuroinit.model.problem import LossFunction
from neuroinit.run.candidates import BRANCHES, LAYERS, WHOLE
from neuroinit.run.loop.closing import without_statistics
from neuroinit.run.optimize import optimize
from neuroinit.run.options import OptimizeOptions
from neuroinit.run.results.result import Result
from neuroinit.run.verify import verified

KEPT = 16  # batches for the trainings: 4 to validate, 12 to train
PASSED = ("compute_loss", "autocast", "cut", "batch_dim", "targets")


class KeptBatches:
    """Yields a user's batches and keeps the first of them.

    Args:
        batches: Any iterable; a generator can still be iterated over only once.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches, self.kept = batches, list[Batch]()
        self.first_pass = self._read()

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches) if self.kept else self.first_pass

    def _read(self) -> Iterator[Batch]:
        for batch in self.batches:
            if len(self.kept) < KEPT:
                self.kept.append(batch)
            yield batch

    def filled(self) -> list[Batch]:
        """The first ``KEPT`` batches, or all if there are fewer; goes on with the first pass."""
        for _ in islice(self.first_pass, KEPT - len(self.kept)):
            pass
        return self.kept


def optimize_verified(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: LossFunction | None,
    method: Initialization,
    optimizer: OptimizerLike,
    options: OptimizeOptions,
) -> Result:
    """The result of :func:`optimize`, or another one if short trainings do not confirm it.

    Args:
        model: Any module.
        batches: As for :func:`optimize`; the first 16 are kept.
        loss_fn: As for :func:`optimize`.
        method: As for :func:`optimize`.
        optimizer: The optimizer, or a function of parameters that makes it.
        options: Other arguments of :func:`optimize`.
    """
    compute_loss = options.get("compute_loss")
    check_batches(batches, pairs=loss_fn is not None and compute_loss is None)
    kept = KeptBatches(batches)
    found = {WHOLE: optimize(model, kept, loss_fn, method, **options)}
    if is_sharded_model(unwrap(model)):
        warn("The result is not verified: short trainings need a model that is not sharded.")
        return found[WHOLE]
    if isinstance(method, NIO) and isinstance(method.rule, CommonFactor):
        found |= _alternatives(model, kept.filled(), loss_fn, method, options)
    layout = batch_layout(options.get("cut"), options.get("batch_dim", 0), options.get("targets"))
    shown = options.get("progress", True)
    return verified(model, found, kept.filled(), loss_fn, compute_loss, optimizer, layout, shown)


def _alternatives(
    model: nn.Module,
    batches: list[Batch],
    loss_fn: LossFunction | None,
    method: Initialization,
    options: OptimizeOptions,
) -> dict[str, Result]:
    """Other results to try, by name: unit variance of every layer, and small residual branches."""
    include, exclude = method.include, method.exclude
    tried: dict[str, Initialization] = {
        LAYERS: LSUV(redraw=False, include=include, exclude=exclude),
        BRANCHES: SmallBranches(include=include, exclude=exclude),
    }
    passed = cast(OptimizeOptions, {k: v for k, v in options.items() if k in PASSED})
    passed["progress"] = False
    found = {}
    with warnings.catch_warnings(), without_statistics():  # those of the winner are measured later
        warnings.simplefilter("ignore", UserWarning)  # the method has warned
        for name, alternative in tried.items():
            with suppress(ValueError):  # not possible for this model or its batches
                found[name] = optimize(model, batches, loss_fn, alternative, **passed)
    return found
