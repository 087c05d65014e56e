"""Checks of arguments, which raise one clear error before any work is done."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence

import torch


def check_count(name: str, value: object, least: int, also: str = "") -> None:
    """Raise unless ``value`` is an integer of at least ``least``; ``also`` names other choices."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(_message(name, value, f"an int{_or(also)}"))
    if value < least:
        raise ValueError(_message(name, value, f"an int of at least {least}{_or(also)}"))


def check_number(
    name: str,
    value: object,
    low: float,
    high: float = math.inf,
    closed: bool = False,
    also: str = "",
) -> None:
    """Raise unless ``low < value < high``, or ``low <= value < high`` if ``closed``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(_message(name, value, f"a number{_or(also)}"))
    number = float(value)
    above = number >= low if closed else number > low
    if not (math.isfinite(number) and above and number < high):
        bound = f"{'>=' if closed else '>'} {low:g}"
        bound += f" and < {high:g}" if high < math.inf else ""
        raise ValueError(_message(name, value, f"a finite number {bound}{_or(also)}"))


def check_overlap(value: object) -> None:
    """Raise unless an overlap ratio is in [0, 1)."""
    check_number("overlap", value, 0.0, 1.0, closed=True)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if value not in choices:
        listed = ", ".join(repr(c) for c in choices)
        raise ValueError(_message(name, value, f"one of {listed}"))


def check_patterns(name: str, value: object) -> None:
    """Raise unless ``value`` is a tuple or list of shell patterns."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(p, str) for p in value):
        raise TypeError(_message(name, value, f'a tuple of patterns like `{name}=("*.weight",)`'))


def check_names(name: str, value: Iterable[object]) -> None:
    """Raise unless the keys of a mapping are strings."""
    if not all(isinstance(key, str) for key in value):
        raise TypeError(_message(name, value, "a dict whose keys are names"))


def check_callable(name: str, value: object) -> None:
    """Raise unless ``value`` is callable."""
    if not callable(value):
        raise TypeError(_message(name, value, "callable"))


def check_instance(name: str, value: object, kind: type | tuple[type, ...], example: str) -> None:
    """Raise unless ``value`` is an instance of a class or protocol, or of one of several."""
    if isinstance(value, type) or not isinstance(value, kind):
        raise TypeError(_message(name, value, example))


def _message(name: str, value: object, expected: str) -> str:
    return f"Parameter `{name}` should be {expected}. Found `{name} = {value!r}`."


def _or(also: str) -> str:
    return f" {also}" if also else ""


def check_autocast(dtype: object) -> None:
    """Raise unless ``dtype`` is ``None`` or bfloat16: in float16, second derivatives overflow."""
    if dtype not in (None, torch.bfloat16):
        raise ValueError(_message("autocast", dtype, "`None` or `torch.bfloat16`"))
