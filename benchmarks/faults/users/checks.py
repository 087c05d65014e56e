"""How a case says what was promised: the right numbers, the right words, a model as before."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.utils.interrupts import process_state
from tests.utils.snapshots import snapshot
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks")


class Broken(Exception):
    """A case that did not end as promised."""


@dataclass(frozen=True)
class Case:
    """One thing that a new user tries.

    Args:
        item: The kind of fault, a key of ``ITEMS``.
        name: What is tried.
        check: Raises :class:`Broken`, or anything else, if it does not end as promised.
    """

    item: int
    name: str
    check: Callable[[], None]


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything that has to come back: the model, its hooks, random states, switches."""
    hooks = {
        name: [list(vars(module).get(kind, ())) for kind in HOOKS]
        for name, module in model.named_modules()
    }
    return {**snapshot(model), "hooks": hooks, **process_state()}


@contextlib.contextmanager
def unchanged(*models: nn.Module, but: Sequence[str] = ()) -> Iterator[None]:
    """The models and the process are as before after the block, however it ends.

    Args:
        models: The user's modules.
        but: What may change, such as ``"parameters"`` for a function that works in place.
    """
    before = [state_of(model) for model in models]
    try:
        yield
    finally:
        for model, old in zip(models, before, strict=True):
            new = state_of(model)
            changed = [key for key in old if key not in but and old[key] != new[key]]
            if changed:
                raise Broken(f"changed: {', '.join(changed)}")


@contextlib.contextmanager
def refused(kind: type[Exception], *words: str) -> Iterator[None]:
    """The block raises an error of this kind, with all of these words."""
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise Broken(f"the error lacks {missing}: {error}") from error
    else:
        raise Broken(f"no {kind.__name__}")


@contextlib.contextmanager
def told(*words: str, times: int | None = None) -> Iterator[None]:
    """The block gives a warning with all of these words, so many times if that is said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    found = [text for text in texts if all(word in text for word in words)]
    if not found or (times is not None and len(found) != times):
        raise Broken(f"{len(found)} warnings with {words}; found {texts}")


@contextlib.contextmanager
def untold(*words: str) -> Iterator[None]:
    """The block gives no warning, or none with these words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    found = [text for text in texts if all(word in text for word in words)]
    if found:
        raise Broken(f"a warning: {found[0]}")


def near(found: Any, expected: Any, tolerance: float = 1e-8) -> None:
    """Numbers, tensors or dicts of numbers agree, relative to the largest."""
    if isinstance(expected, Mapping):
        if set(found) != set(expected):
            raise Broken(f"other names: {sorted(set(found) ^ set(expected))}")
        found, expected = [found[n] for n in expected], list(expected.values())
    a, b = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (found, expected))
    error = float((a - b).abs().max() / b.abs().max().clamp_min(1e-300))
    if not error <= tolerance:
        raise Broken(f"off by {error:.2g}")


def sure(condition: object, otherwise: str) -> None:
    """Raise :class:`Broken` unless something is true."""
    if not condition:
        raise Broken(otherwise)
