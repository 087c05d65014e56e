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
from neuroinit.common.targets import Targets
from neuroinit.methods.base import Initialization
from neuroinit.methods.nio.rules import Rule
from neuroinit.methods.updates import Update
from neuroinit.model.arguments.optimizers import OptimizerLike
from neuroinit.model.parameters.selection import ParameterFilter
from neuroinit.model.problem import ComputeLoss
from neuroinit.run.loop.run import OnStep

Function = TypeVar("Function", bound=Callable[..., Any])
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class RunOptions(TypedDict, total=False):
    """Arguments of :func:`optimize` that do not concern the model, data, loss or method."""

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
    targets: Targets | None


class OptimizeOptions(RunOptions, total=False):
    """Arguments of :func:`optimize` besides model, batches, loss and method."""

    compute_loss: ComputeLoss | None
    example: Tensor | Sequence[int] | None


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
    family: str
    sub_batches: int | str
    overlap: float
    split: str
    batch_stats: str
    rule: Rule | None
    gradients_of: ParameterFilter | None
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
    gradients_of: ParameterFilter | None
    min_bias_scale: float | None


class GradInitOptions(GradInitFields, OptimizeOptions, total=False):
    """Keywords of :func:`gradinit_`."""


class MetaInitFields(MethodOptions, total=False):
    """Fields of :class:`MetaInit`."""

    momentum: float
    eps: float
    update: Update | None
    scales_of: ParameterFilter | None
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
    redraw: bool


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
    options: type, kind: type[Initialization], *others: Callable[..., Any]
) -> Callable[[Function], Function]:
    """Decorate a function with ``**options`` so that its signature lists them.

    Args:
        options: A TypedDict with the names and types of the options.
        kind: The method whose fields have the defaults of the options.
        *others: Functions whose arguments have the defaults of options that are not fields.
    """
    signatures = [inspect.signature(other).parameters for other in others]
    defaults = {name: p.default for each in signatures for name, p in each.items()}
    defaults |= {field.name: _default(field) for field in dataclasses.fields(kind)}
    shown = [
        inspect.Parameter(name, _KEYWORD, default=defaults[name], annotation=_text(hint))
        for name, hint in options.__annotations__.items()
    ]

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*named, *shown])  # type: ignore[attr-defined]
        return function

    return decorate


def _text(hint: Any) -> Any:
    """The source text of a type, because evaluating the types of all options takes 50 ms."""
    return getattr(hint, "__forward_arg__", hint)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def checked_fields(
    name: str, kind: type[Initialization], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into fields of a method and options of :func:`optimize`; raise for others.

    Args:
        name: The name of the function that was called, for the error message.
        kind: The class of the method.
        options: The keyword arguments of the function.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    passed = {k: v for k, v in options.items() if k in OptimizeOptions.__annotations__}
    fields = {k: v for k, v in options.items() if k not in passed}
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise TypeError(
            f"`{unknown[0]}` is not an argument of `{name}` or a field of `{kind.__name__}`. "
            f"The fields are: {', '.join(known)}."
        )
    return fields, passed
