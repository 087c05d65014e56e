"""The options of all callbacks: typed, shown by ``help()``, and checked when a callback is made."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_instance
from neuroinit.common.errors import listed
from neuroinit.methods.base import Initialization
from neuroinit.methods.nio.fields import NIOFields
from neuroinit.methods.nio.method import NIO
from neuroinit.model.arguments.optimizers import ParameterGroup, family_of, rate_of
from neuroinit.model.problem import ComputeLoss
from neuroinit.run.optimize import check_run, optimize
from neuroinit.run.optimize_verified import optimize_verified
from neuroinit.run.options import OptimizeOptions, RunOptions, method_and_options, shows_options
from neuroinit.run.results.result import Result

log = logging.getLogger(__name__)

_NEEDED = "Short trainings need one optimizer with a learning rate."


class CallbackOptions(NIOFields, RunOptions, total=False):
    """The options of a callback that are fields of NIO or arguments of ``optimize``."""


show_options = shows_options(CallbackOptions, NIO, optimize)


@dataclass(frozen=True)
class CallbackSettings:
    """The method and options that a callback runs.

    Args:
        method: The method.
        adapts: Whether the method takes ``rate`` and ``family`` from the trainer's optimizer: true
            unless the user passed a method.
        verify: Whether short trainings with the trainer's optimizer verify the result of NIO;
            ``None`` if that is possible.
        options: Arguments of :func:`neuroinit.optimize`.
    """

    method: Initialization
    adapts: bool
    verify: bool | None
    options: OptimizeOptions

    def run(
        self,
        model: nn.Module,
        batches: Iterable[Batch],
        compute_loss: ComputeLoss,
        optimizers: Sequence[Optimizer],
    ) -> Result:
        """Optimize for the trainer's loss and optimizer, as :func:`neuroinit.nio_` does."""
        passed: OptimizeOptions = {**self.options, "compute_loss": compute_loss}
        rate = peak_rate(optimizers) if self.adapts else None
        method = self.method if rate is None else self._method_for(rate, optimizers[0])
        if rate is not None and self.verify is not False:
            with at_peak(optimizers[0]) as optimizer:
                return optimize_verified(model, batches, None, method, optimizer, passed)
        if self.verify:
            raise ValueError(f"`verify = True` is not possible. {_NEEDED}")
        if self.adapts and self.verify is None:
            log.info("Not verified. %s", _NEEDED)
        return optimize(model, batches, method=method, **passed)

    def _method_for(self, rate: float, optimizer: Optimizer) -> Initialization:
        """The method, with the optimizer's ``rate`` and ``family`` if no rate was set."""
        if not isinstance(self.method, NIO) or self.method.rate is not None:
            return self.method
        return dataclasses.replace(self.method, rate=rate, family=family_of(optimizer))


def callback_settings(
    method: Initialization | None, given: CallbackOptions, verify: bool | None
) -> CallbackSettings:
    """Check the arguments of a callback.

    Args:
        method: A method, or ``None`` for NIO with the fields in ``given``.
        given: The user's options.
        verify: See :class:`CallbackSettings`.

    Raises:
        TypeError: If an option is unknown or of a wrong type, or if there is a ``method`` next to a
            field of NIO or ``verify=True``.
    """
    if verify is not None:
        check_instance("verify", verify, bool, "`True`, `False` or `None`")
    fields = sorted(given.keys() & NIOFields.__annotations__.keys())
    if method is not None and fields:
        raise TypeError(
            f"Found `method` and {listed(fields)}. Pass the method with its fields, such "
            "as `method=NIO(steps=20)`, or the fields of NIO alone, such as `steps=20`, not both."
        )
    if method is not None and verify:
        raise TypeError(
            "`verify = True` is for NIO with the trainer's optimizer, without `method`."
        )
    nio, options = method_and_options("InitCallback", NIO, CallbackOptions, given)
    found: Initialization = nio if method is None else method
    check_instance("method", found, Initialization, "a method such as `NIO()`")
    check_run(found, options)
    return CallbackSettings(found, method is None, verify, options)


def peak_rate(optimizers: Sequence[Optimizer]) -> float | None:
    """The step size of training (``rate_of``) at the highest learning rate of the schedule.

    A schedule that warms up has lowered the learning rate before training begins; its base rate
    is in ``initial_lr``, and in ``max_lr`` for ``OneCycleLR``.

    Returns:
        The rate for ``NIO(rate=...)``; ``None`` for several optimizers, and for a rate of 0.
    """
    if len(optimizers) != 1:
        return None
    with at_peak(optimizers[0]) as optimizer:
        return rate_of(optimizer) if any(group["lr"] for group in optimizer.param_groups) else None


@contextmanager
def at_peak(optimizer: Optimizer) -> Iterator[Optimizer]:
    """A context in which the optimizer has the highest learning rates of its schedule."""
    groups = optimizer.param_groups
    optimizer.param_groups = [_at_peak(group) for group in groups]
    try:
        yield optimizer
    finally:
        optimizer.param_groups = groups


def _at_peak(group: ParameterGroup) -> ParameterGroup:
    rates = [float(group[key]) for key in ("lr", "initial_lr", "max_lr") if key in group]
    kept = {key: value for key, value in group.items() if key != "initial_lr"}
    return {**kept, "lr": max(rates, default=0.0)}
