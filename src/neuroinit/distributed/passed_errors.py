"""Errors as text, to send them from one rank to the others."""

from __future__ import annotations

import builtins

from neuroinit.common import errors

_MARK = "_neuroinit_raised_on_all_ranks"


def described(error: BaseException) -> dict[str, str]:
    """The type and the message of an error."""
    plain = len(error.args) == 1 and isinstance(error.args[0], str)  # a KeyError adds quotes
    return {"kind": type(error).__name__, "text": error.args[0] if plain else str(error)}


def rebuilt(kind: str, text: str) -> BaseException:
    """An error of the same type if it is one of Python's or ours; else a RuntimeError."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    kinds = (Exception, KeyboardInterrupt, SystemExit)
    known = isinstance(found, type) and issubclass(found, kinds)
    try:
        error = found(text) if known and found is not None else None
    except TypeError:  # UnicodeDecodeError and some others take more than a text
        error = None
    return error if isinstance(error, BaseException) else RuntimeError(f"{kind}: {text}")


def mark_common(error: BaseException) -> None:
    """Mark an error as one that all ranks raise."""
    vars(error)[_MARK] = True


def is_common(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is marked by :func:`mark_common`."""
    found: BaseException | None = error
    while found is not None:
        if _MARK in vars(found):
            return True
        found = found.__cause__
    return False
