"""Where a run starts: initialization methods by name, with settings.

``nio:steps=20,gamma=2.0`` is the method ``nio`` with two settings.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import nn

from neuroinit.experiments.networks import kaiming
from neuroinit.methods.base import Method
from neuroinit.methods.nio import NIO
from neuroinit.optimize import optimize
from neuroinit.problem import LossFunction
from neuroinit.result import Result

Change = Callable[[nn.Module], Any]


@dataclass(frozen=True)
class Start:
    """A rule for the weights, and a method that learns their scales on top of it, or none."""

    rule: Change | None = None
    method: Callable[..., Method] | None = None


STARTS: dict[str, Start] = {
    "default": Start(),
    "kaiming": Start(kaiming),
    "nio": Start(kaiming, NIO),
    "nio-paper": Start(kaiming, NIO.paper),
    "nio-reference": Start(kaiming, NIO.reference),
    "default+nio": Start(None, NIO),
}


def parse(method: str) -> tuple[str, dict[str, Any]]:
    """The name of a method and its settings.

    Example:
        >>> parse("nio:steps=20,gamma=2.0,split='cover'")
        ('nio', {'steps': 20, 'gamma': 2.0, 'split': 'cover'})
    """
    name, _, text = method.partition(":")
    if name not in STARTS:
        raise ValueError(f"There is no method `{name}`. Choose one of {', '.join(STARTS)}.")
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("not of the form name=value")
        return name, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"`{method}`: settings should look like `{name}:steps=20,gamma=2.0` ({error})."
        ) from error


def learned(method: str) -> Method | None:
    """The method that learns scales, or ``None`` if there is nothing to learn.

    Example:
        >>> learned("nio:steps=20").steps
        20
    """
    name, settings = parse(method)
    make = STARTS[name].method
    if make is None:
        if settings:
            raise ValueError(f"`{method}`: `{name}` has no settings.")
        return None
    try:
        return make(**settings)
    except TypeError as error:
        raise ValueError(f"`{method}`: {error}") from error


def start_(
    model: nn.Module,
    method: str,
    batches: Iterable[Any],
    loss_fn: LossFunction = F.cross_entropy,
) -> Result | None:
    """Initialize a model in place by a method's name.

    Returns:
        The result, if the method learned scales.

    Example:
        >>> start_(nn.Linear(4, 3), "kaiming", [])
    """
    chosen, rule = learned(method), STARTS[parse(method)[0]].rule
    if rule is not None:
        rule(model)
    if chosen is None:
        return None
    result = optimize(model, batches, loss_fn, chosen)
    result.apply_(model)
    return result
