"""The options of all callbacks: typed, shown by ``help()``, and checked when a callback is made."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, get_type_hints

import torch
from torch.optim import Optimizer

from neuroinit.common.checks import check_instance
from neuroinit.common.errors import listed
from neuroinit.common.layout import Cut
from neuroinit.methods.base import Initialization
from neuroinit.methods.nio.method import NIO
from neuroinit.model.optimizers import rate_of
from neuroinit.run.loop import OnStep
from neuroinit.run.optimize import optimize
from neuroinit.run.options import NIOFields

Function = TypeVar("Function", bound=Callable[..., object])


class RunOptions(TypedDict, total=False):
    """The options of :func:`neuroinit.optimize`, without the data and the loss of the trainer."""

    engine: str
    microbatch: int | None
    progress: bool
    on_step: OnStep | None
    memory_limit: int | None
    autocast: torch.dtype | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    cut: Cut | None
    batch_dim: int


class CallbackOptions(NIOFields, RunOptions, total=False):
    """All options that a callback takes besides its own arguments."""


@dataclass(frozen=True)
class CallbackSettings:
    """What a callback runs.

    Args:
        method: The method.
        adapts: Whether the method may take settings from the trainer's optimizer: if the user
            passed fields of NIO, or nothing, and not a method.
        options: Arguments of :func:`neuroinit.optimize`.
    """

    method: Initialization
    adapts: bool
    options: RunOptions

    def method_for(self, optimizers: Sequence[Optimizer]) -> Initialization:
        """The method, with the learning rate of SGD as ``NIO(rate=...)`` if that was not set."""
        method = self.method
        if not self.adapts or not isinstance(method, NIO) or method.rate is not None:
            return method
        return dataclasses.replace(method, rate=peak_rate(optimizers))


def callback_settings(method: Initialization | None, given: CallbackOptions) -> CallbackSettings:
    """Check the arguments of a callback.

    Args:
        method: A method, or ``None`` for NIO with the fields in ``given``.
        given: The options, as the user passed them.

    Raises:
        TypeError: If an option is unknown, or is a field of NIO next to a ``method``.
    """
    values: dict[str, Any] = dict(given)
    unknown = sorted(values.keys() - _SHOWN.keys())
    if unknown:
        raise TypeError(
            f"`InitCallback` has no option `{unknown[0]}`. The options are: {', '.join(_SHOWN)}."
        )
    fields = {name: value for name, value in values.items() if name in _FIELDS}
    if method is not None and fields:
        raise TypeError(
            f"Found `method` and {listed(sorted(fields))}. Pass the method with its fields, such "
            "as `method=NIO(steps=20)`, or the fields of NIO alone, such as `steps=20`, not both."
        )
    found: Initialization = NIO(**fields) if method is None else method
    check_instance("method", found, Initialization, "a method such as `NIO()`")
    options: Any = {name: value for name, value in values.items() if name not in _FIELDS}
    return CallbackSettings(found, method is None, options)


def show_options(function: Function) -> Function:
    """Show every option with its type and default in ``help()``, in place of ``**options``."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    shown = signature.replace(parameters=[*named, *_SHOWN.values()])
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function


def peak_rate(optimizers: Sequence[Optimizer]) -> float | None:
    """How far SGD goes by a gradient, ``lr / (1 - momentum)``, at the highest rate of its schedule.

    A schedule that warms up has lowered the learning rate before training begins; its base rate
    is in ``initial_lr``, and in ``max_lr`` for ``OneCycleLR``.

    Returns:
        The rate for ``NIO(rate=...)``; ``None`` for other optimizers than SGD, for several
        optimizers, and for a learning rate of 0.
    """
    if len(optimizers) != 1:
        return None
    twin = copy.copy(optimizers[0])  # the settings of the user's own optimizer stay as they are
    twin.param_groups = [_at_peak(group) for group in twin.param_groups]
    return rate_of(twin) if any(group["lr"] for group in twin.param_groups) else None


def _at_peak(group: dict[str, Any]) -> dict[str, Any]:
    rates = [float(group[key]) for key in ("lr", "initial_lr", "max_lr") if key in group]
    kept = {key: value for key, value in group.items() if key != "initial_lr"}
    return {**kept, "lr": max(rates, default=0.0)}


_FIELDS = get_type_hints(NIOFields)


def _shown() -> dict[str, inspect.Parameter]:
    """Every option as a parameter; the defaults are those of NIO and :func:`optimize`."""
    plain, arguments = NIO(), inspect.signature(optimize).parameters
    return {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(plain, name) if name in _FIELDS else arguments[name].default,
            annotation=kind,
        )
        for name, kind in get_type_hints(CallbackOptions).items()
    }


_SHOWN = _shown()
