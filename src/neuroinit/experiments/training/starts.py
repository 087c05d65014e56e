"""Where a run starts: initializations by name, with settings.

``kaiming`` and ``trunc-normal`` are rules for the weights, ``nio`` and ``gradinit`` learn scales on
top of one: ``trunc-normal+nio:steps=20,gamma=2.0``. Without a rule it is Kaiming,
as in the paper; ``default`` leaves the model as it was built.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import nn

from neuroinit.methods.base import Initialization
from neuroinit.methods.classic import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fixup import FixUp
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio.method import NIO
from neuroinit.model.problem import LossFunction
from neuroinit.run.optimize import optimize
from neuroinit.run.result import Result

RULES: dict[str, Callable[[], Initialization] | None] = {
    "default": None,
    "kaiming": Kaiming,
    "xavier": Xavier,
    "orthogonal": Orthogonal,
    "trunc-normal": TruncNormal,
    "fixup": FixUp,
}


def _gradinit(preset: str | None = None, **settings: Any) -> GradInit:
    return GradInit.preset(preset, **settings) if preset else GradInit(**settings)


METHODS: dict[str, Callable[..., Initialization]] = {
    "nio": NIO,
    "nio-paper": NIO.paper,
    "nio-reference": NIO.reference,
    "gradinit": _gradinit,
    "metainit": MetaInit,
    "lsuv": LSUV,
}


def parse(start: str) -> tuple[str, str | None, dict[str, Any]]:
    """The rule, the method or ``None``, and its settings.

    Example:
        >>> parse("nio:steps=20,split='cover'")
        ('kaiming', 'nio', {'steps': 20, 'split': 'cover'})
        >>> parse("default")
        ('default', None, {})
    """
    names, _, text = start.partition(":")
    first, plus, second = names.partition("+")
    rule, method = (first, second) if plus else (first, None)
    if not plus and first in METHODS:
        rule, method = "kaiming", first
    if rule not in RULES or (method is not None and method not in METHODS):
        raise ValueError(
            f"There is no start `{start}`. Choose a rule ({', '.join(RULES)}), a method "
            f"({', '.join(METHODS)}), or both, as in `default+nio`."
        )
    settings = _settings(start, text)
    if settings and method is None:
        raise ValueError(f"`{start}`: a rule has no settings.")
    return rule, method, settings


def _settings(start: str, text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("not of the form name=value")
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"`{start}`: settings should look like `nio:steps=20,gamma=2.0` ({error})."
        ) from error


def learned(start: str) -> Initialization | None:
    """The method that learns scales, or ``None`` if the start is a rule.

    Example:
        >>> learned("nio:steps=20").steps
        20
    """
    _, method, settings = parse(start)
    if method is None:
        return None
    try:
        return METHODS[method](**settings)
    except TypeError as error:
        raise ValueError(f"`{start}`: {error}") from error


def alone(start: str) -> Initialization | None:
    """A rule or a method on its own, for models that have their weights already.

    Example:
        >>> alone("kaiming").mode, alone("nio").steps, alone("default")
        ('fan_in', 40, None)
    """
    if "+" in start:
        raise ValueError(f"`{start}`: name one rule or one method here.")
    rule = RULES[parse(start)[0]]
    return learned(start) or (rule() if rule is not None else None)


def rule_(model: nn.Module, start: str) -> None:
    """Give a model the weights of a start's rule, in place."""
    rule = RULES[parse(start)[0]]
    if rule is not None:
        optimize(model, (), None, rule()).apply_(model)


def start_(
    model: nn.Module,
    start: str,
    batches: Iterable[Any],
    loss_fn: LossFunction = F.cross_entropy,
    checkpoint: Path | None = None,
) -> Result | None:
    """Initialize a model in place by the name of a start.

    With ``checkpoint``, a file, one that was killed goes on from there: see
    :func:`~neuroinit.optimize`.

    Returns:
        The result, if scales were learned.

    Example:
        >>> start_(nn.Linear(4, 3), "kaiming", [])
    """
    method = learned(start)
    rule_(model, start)
    if method is None:
        return None
    result = optimize(model, batches, loss_fn, method, checkpoint=checkpoint)
    result.apply_(model)
    return result
