"""The keyword arguments of functions such as :func:`nio_`, for type checkers, IDEs and ``help()``.

Each function takes the fields of its method and the options of :func:`optimize`.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, TypeVar, cast

import torch
from torch import Tensor

from neuroinit.common.layout import Cut
from neuroinit.common.targets import Targets
from neuroinit.methods.base import Initialization
from neuroinit.methods.fields import GradInitFields, LSUVFields, MetaInitFields
from neuroinit.methods.nio.fields import NIOFields
from neuroinit.model.problem import ComputeLoss
from neuroinit.run.loop.run import OnStep

Function = TypeVar("Function", bound=Callable[..., object])
M = TypeVar("M", bound=Initialization)
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class FirstOrderOptions(TypedDict, total=False):
    """Arguments of :func:`optimize` that a method without second derivatives can use, too."""

    microbatch: int | None
    progress: bool
    on_step: OnStep | None
    autocast: torch.dtype | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    cut: Cut | None
    batch_dim: int
    targets: Targets | None


class EngineOptions(TypedDict, total=False):
    """Arguments of :func:`optimize` for second derivatives."""

    engine: str
    memory_limit: int | None


class DataOptions(TypedDict, total=False):
    """Arguments of :func:`optimize` that say what the data and the loss are."""

    compute_loss: ComputeLoss | None
    example: Tensor | Sequence[int] | None


class RunOptions(EngineOptions, FirstOrderOptions, total=False):
    """Arguments of :func:`optimize` that do not concern the model, data, loss or method."""


class OptimizeOptions(DataOptions, RunOptions, total=False):
    """Arguments of :func:`optimize` besides model, batches, loss and method."""


class NIOOptions(NIOFields, OptimizeOptions, total=False):
    """Keywords of :func:`nio_`."""


class GradInitOptions(GradInitFields, OptimizeOptions, total=False):
    """Keywords of :func:`gradinit_`."""


class MetaInitOptions(MetaInitFields, OptimizeOptions, total=False):
    """Keywords of :func:`metainit_`."""


class LSUVOptions(LSUVFields, DataOptions, FirstOrderOptions, total=False):
    """Keywords of :func:`lsuv_`."""


def check_not_both(options: Mapping[str, object], others: Sequence[str]) -> None:
    """Raise if options are given next to the ``optimizer`` that sets them."""
    both = [other for other in others if other in options]
    if both:
        raise TypeError(
            f"Found `optimizer` and `{both[0]} = {options[both[0]]!r}`. The former sets the "
            "latter: pass one of them."
        )


def shows_options(
    options: type, kind: type[Initialization], *others: Callable[..., object]
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
        function.__dict__["__signature__"] = own.replace(parameters=[*named, *shown])
        return function

    return decorate


def _text(hint: object) -> object:
    """The source text of a type, because evaluating the types of all options takes 50 ms."""
    return getattr(hint, "__forward_arg__", hint)


def _default(field: dataclasses.Field[object]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def method_and_options(
    name: str, kind: type[M], typed: type, options: Mapping[str, object]
) -> tuple[M, OptimizeOptions]:
    """Make a method from its fields among the options; raise for unknown options.

    Args:
        name: The name of the function that was called, for the error message.
        kind: The class of the method.
        typed: The TypedDict of the options.
        options: The keyword arguments of the function.

    Returns:
        The method, and the options of :func:`optimize`.
    """
    known = typed.__annotations__
    unknown = [option for option in options if option not in known]
    if unknown:
        raise TypeError(
            f"`{unknown[0]}` is not an argument of `{name}`. Its options are: {', '.join(known)}."
        )
    passed = {k: v for k, v in options.items() if k in OptimizeOptions.__annotations__}
    fields = {k: v for k, v in options.items() if k not in passed}
    make: Callable[..., M] = kind  # which checks the types of its fields
    return make(**fields), cast(OptimizeOptions, passed)
