"""The keyword arguments of functions such as :func:`nio_`, for type checkers, IDEs and ``help()``.

Each function takes the fields of its method and the options of :func:`optimize`.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from neuroinit.common.layout import Cut
from neuroinit.methods.base import Initialization
from neuroinit.methods.nio.rules import Rule
from neuroinit.methods.updates import Update
from neuroinit.model.optimizers import OptimizerLike
from neuroinit.model.problem import ComputeLoss
from neuroinit.model.selection import LooksAt
from neuroinit.run.loop import OnStep

Function = TypeVar("Function", bound=Callable[..., Any])


class OptimizeOptions(TypedDict, total=False):
    """Arguments of :func:`optimize` besides model, batches, loss and method."""

    compute_loss: ComputeLoss | None
    engine: str
    microbatch: int | None
    progress: bool
    on_step: OnStep | None
    memory_limit: int | None
    autocast: torch.dtype | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    example: Tensor | Sequence[int] | None
    cut: Cut | None
    batch_dim: int


class InitializationOptions(TypedDict, total=False):
    """Fields of every initialization."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]


class MethodOptions(InitializationOptions, total=False):
    """Fields of every method that learns scales."""

    steps: int
    lr: float
    min_scale: float
    reinit_zeros: float | None
    tolerance: float


class NIOFields(MethodOptions, total=False):
    """Fields of :class:`NIO`."""

    gamma: float | str
    gamma_per_loss: float
    rate: float | None
    sub_batches: int | str
    overlap: float
    split: str
    batch_stats: str
    rule: Rule
    gradients_of: LooksAt | None
    min_bias_scale: float | None


class NIOOptions(NIOFields, OptimizeOptions, total=False):
    """Keywords of :func:`nio_`."""


class GradInitFields(MethodOptions, total=False):
    """Fields of :class:`GradInit`."""

    gamma: float
    eta: float
    optimizer: str | OptimizerLike
    normalize: bool
    through_update: bool
    overlap: float
    update: Update
    gradients_of: LooksAt | None
    min_bias_scale: float | None


class GradInitOptions(GradInitFields, OptimizeOptions, total=False):
    """Keywords of :func:`gradinit_`."""


class MetaInitFields(MethodOptions, total=False):
    """Fields of :class:`MetaInit`."""

    momentum: float
    eps: float
    update: Update | None
    scales_of: LooksAt | None
    batch_stats: str
    sign_flips: bool


class MetaInitOptions(MetaInitFields, OptimizeOptions, total=False):
    """Keywords of :func:`metainit_`."""


class LSUVFields(InitializationOptions, total=False):
    """Fields of :class:`LSUV`."""

    steps: int
    tolerance_var: float
    tries: int
    measure: str
    batch_stats: str


class LSUVOptions(LSUVFields, OptimizeOptions, total=False):
    """Keywords of :func:`lsuv_`."""


class KaimingFields(InitializationOptions, total=False):
    """Keywords of :func:`kaiming_` and :func:`fixup_`."""

    mode: str
    distribution: str
    nonlinearity: str


class XavierFields(InitializationOptions, total=False):
    """Keywords of :func:`xavier_`."""

    distribution: str
    nonlinearity: str


class OrthogonalFields(InitializationOptions, total=False):
    """Keywords of :func:`orthogonal_`."""

    nonlinearity: str


class TruncNormalFields(InitializationOptions, total=False):
    """Keywords of :func:`trunc_normal_`."""

    std: float


def shows_options(
    kind: type[Initialization], *others: Callable[..., Any]
) -> Callable[[Function], Function]:
    """Decorate a function with ``**options`` so that its signature lists them with defaults.

    Args:
        kind: Its fields are options.
        *others: Functions whose keyword arguments are options, too, such as :func:`optimize`.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        known = {n: p for n, p in own.parameters.items() if p.kind is not p.VAR_KEYWORD}
        for parameter in _keywords(kind, *others):
            known.setdefault(parameter.name, parameter)
        function.__signature__ = own.replace(parameters=list(known.values()))  # type: ignore[attr-defined]
        return function

    return decorate


def _keywords(kind: type[Initialization], *others: Callable[..., Any]) -> list[inspect.Parameter]:
    fields = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=_default(f))
        for f in dataclasses.fields(kind)
    ]
    options = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for other in others
        for name, parameter in inspect.signature(other).parameters.items()
        if name in OptimizeOptions.__annotations__
    ]
    return [*fields, *options]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def checked_fields(
    name: str, kind: type[Initialization], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a method, and the options of :func:`optimize`; raise for any other name.

    Args:
        name: The function that was called, for the message.
        kind: The method.
        options: What was passed.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    passed = {k: v for k, v in options.items() if k in OptimizeOptions.__annotations__}
    fields = {k: v for k, v in options.items() if k not in passed}
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise TypeError(
            f"`{unknown[0]}` is no argument of `{name}` and no field of `{kind.__name__}`. "
            f"The fields are: {', '.join(known)}."
        )
    return fields, passed
