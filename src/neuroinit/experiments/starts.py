"""Where a run starts: initialization methods by name, with settings.

``nio:steps=20,gamma=2.0`` is the method ``nio`` with two settings.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

import torch.nn.functional as F
from torch import nn

from neuroinit.experiments.networks import kaiming
from neuroinit.methods.base import Method
from neuroinit.methods.nio import NIO
from neuroinit.optimize import optimize
from neuroinit.problem import LossFunction
from neuroinit.result import Result

Start = Callable[..., Result | None]


def _rule(change: Callable[[nn.Module], Any]) -> Start:
    """A start that looks at the model alone."""

    def start(model: nn.Module, batches: Iterable[Any], loss_fn: LossFunction) -> None:
        change(model)

    return start


def _learned(method: Callable[..., Method], base: Callable[[nn.Module], Any] | None) -> Start:
    """A start that learns scales from data, on top of another (the paper's: Kaiming)."""

    def start(
        model: nn.Module, batches: Iterable[Any], loss_fn: LossFunction, **settings: Any
    ) -> Result:
        chosen = method(**settings)
        if base is not None:
            base(model)
        result = optimize(model, batches, loss_fn, chosen)
        result.apply_(model)
        return result

    return start


STARTS: dict[str, Start] = {
    "default": _rule(lambda model: None),
    "kaiming": _rule(kaiming),
    "nio": _learned(NIO, kaiming),
    "nio-paper": _learned(NIO.paper, kaiming),
    "nio-reference": _learned(NIO.reference, kaiming),
    "default+nio": _learned(NIO, None),
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
    name, settings = parse(method)
    try:
        return STARTS[name](model, batches, loss_fn, **settings)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise ValueError(f"`{method}`: {error}.") from error
