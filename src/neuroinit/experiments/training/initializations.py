"""Initializations by name, with settings.

A name is a scheme that draws all weights (``kaiming``, ``trunc-normal``), a method that learns one
scale per tensor (``nio``, ``gradinit``), or both, as in ``trunc-normal+nio``. A method alone starts
from Kaiming's weights, as in the paper; the scheme ``default`` keeps the model as it was built.
Settings of the method follow a colon: ``nio:steps=20,gamma=2.0``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Unpack

import torch.nn.functional as F
from torch import nn

from neuroinit.experiments.data.split import Batch
from neuroinit.methods.base import Initialization
from neuroinit.methods.classic.fixup import FixUp
from neuroinit.methods.classic.schemes import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fields import GradInitFields
from neuroinit.methods.gradinit import GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio.method import NIO
from neuroinit.run.optimize import optimize
from neuroinit.run.results.result import Result

SCHEMES: dict[str, Callable[[], Initialization] | None] = {
    "default": None,
    "kaiming": Kaiming,
    "xavier": Xavier,
    "orthogonal": Orthogonal,
    "trunc-normal": TruncNormal,
    "fixup": FixUp,
}


def _gradinit(preset: str | None = None, **changes: Unpack[GradInitFields]) -> GradInit:
    return GradInit.preset(preset, **changes) if preset else GradInit(**changes)


# name -> class of the method, and the function that makes it from settings
METHODS: dict[str, tuple[type[Initialization], Callable[..., Initialization]]] = {
    "nio": (NIO, NIO),
    "nio-paper": (NIO, NIO.paper),
    "nio-reference": (NIO, NIO.reference),
    "gradinit": (GradInit, _gradinit),
    "metainit": (MetaInit, MetaInit),
    "lsuv": (LSUV, LSUV),
}


@dataclass(frozen=True)
class Parsed:
    """The parts of a name: a scheme, a method or ``None``, and the method's settings."""

    scheme: str
    method: str | None
    settings: dict[str, object]


def parse(name: str) -> Parsed:
    """Take a name apart.

    Example:
        >>> parse("nio:steps=20,split=cover")
        Parsed(scheme='kaiming', method='nio', settings={'steps': 20, 'split': 'cover'})
        >>> parse("default")
        Parsed(scheme='default', method=None, settings={})
    """
    names, _, text = name.partition(":")
    first, plus, second = names.partition("+")
    scheme, method = (first, second) if plus else (first, None)
    if not plus and first in METHODS:
        scheme, method = "kaiming", first
    if scheme not in SCHEMES or (method is not None and method not in METHODS):
        raise ValueError(
            f"There is no initialization `{name}`. Choose a scheme ({', '.join(SCHEMES)}), a "
            f"method ({', '.join(METHODS)}), or both, as in `default+nio`."
        )
    settings = _settings(name, text)
    if settings and method is None:
        raise ValueError(f"`{name}`: a scheme has no settings. These have: {', '.join(METHODS)}.")
    return Parsed(scheme, method, settings)


def _settings(name: str, text: str) -> dict[str, object]:
    """Values are Python literals; anything else, such as ``cover``, is text."""
    found: dict[str, object] = {}
    for part in re.split(r",(?=\s*\w+\s*=)", text) if text else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key.isidentifier() and equals and value):
            raise ValueError(
                f"`{name}`: settings should look like `nio:steps=20,gamma=2.0`. Found `{part}`."
            )
        if key in found:
            raise ValueError(f"`{name}`: `{key}` is set twice.")
        try:
            found[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[key] = value
    return found


def learned_method(name: str) -> Initialization | None:
    """The method that learns scales, ``None`` if the name is that of a scheme.

    Example:
        >>> learned_method("nio:steps=20").steps
        20
    """
    parsed = parse(name)
    if parsed.method is None:
        return None
    kind, make = METHODS[parsed.method]
    known = [field.name for field in fields(kind)] + ["preset"] * (make is not kind)
    for key in parsed.settings:
        if key not in known:
            raise ValueError(
                f"`{name}`: `{parsed.method}` has no setting `{key}`. Choose from "
                f"{', '.join(known)}."
            )
    try:
        return make(**parsed.settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}`: {error}") from error


def scheme_or_method(name: str) -> Initialization | None:
    """One scheme or one method, for models that already have weights; ``None`` for ``default``.

    Example:
        >>> scheme_or_method("kaiming").mode, scheme_or_method("nio").steps
        ('fan_in', 40)
    """
    if "+" in name:
        raise ValueError(f"`{name}`: name one scheme or one method here, without `+`.")
    scheme = SCHEMES[parse(name).scheme]
    return learned_method(name) or (scheme() if scheme is not None else None)


def draw_weights_(model: nn.Module, name: str) -> None:
    """Apply the scheme of an initialization to a model, in place."""
    scheme = SCHEMES[parse(name).scheme]
    if scheme is not None:
        optimize(model, (), None, scheme()).apply_(model)


def initialize_(
    model: nn.Module, name: str, batches: Iterable[Batch], checkpoint: Path | None = None
) -> Result | None:
    """Initialize a model in place by the name of an initialization.

    Args:
        model: A classifier.
        name: A scheme, a method, or both; see this module.
        batches: Inputs and targets, for methods that learn scales.
        checkpoint: A file from which a run that was killed continues: see
            :func:`~neuroinit.optimize`.

    Returns:
        The result of the method, ``None`` if the name is that of a scheme.

    Example:
        >>> initialize_(nn.Linear(4, 3), "kaiming", [])
    """
    method = learned_method(name)
    draw_weights_(model, name)
    if method is None:
        return None
    result = optimize(model, batches, F.cross_entropy, method, checkpoint=checkpoint)
    result.apply_(model)
    return result
