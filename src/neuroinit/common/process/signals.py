"""Delays Ctrl-C and SIGTERM while a model is changed, so that it can be restored.

Python raises KeyboardInterrupt between any two instructions, also at the start of an ``__exit__``,
whose clean-up is then skipped. Inside :class:`deferred`, signals are delayed. They are handled
inside :class:`allowed`, where the user's code runs, and by :func:`deliver`; at the latest at the
exit of the outermost :class:`deferred`. The handler is the one that was installed before.

Python handles signals in the main thread. In other threads these functions do nothing.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], object] | int | None


class Where(enum.Enum):
    """The code in which a signal is handled at once."""

    NOWHERE = enum.auto()
    USER_CODE = enum.auto()
    ANYWHERE = enum.auto()


@dataclass
class _State:
    """The state of signal handling, for the main thread.

    Args:
        depth: Number of :class:`deferred` contexts that are open.
        where: The code in which a signal is handled at once.
        waiting: Signals that were received and are delayed.
        previous: Signal -> handler that was installed before.
    """

    depth: int = 0
    where: Where = Where.NOWHERE
    waiting: list[int] = field(default_factory=list)
    previous: dict[int, Handler] = field(default_factory=dict)


_state = _State()


class deferred:
    """A context in which signals are delayed. Can be nested."""

    def __enter__(self) -> None:
        self.active = _in_main_thread()
        if self.active:
            self.before, _state.where = _state.where, Where.NOWHERE
            if _state.depth == 0:
                _install()
            _state.depth += 1

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self.active:
            return
        _state.depth -= 1
        if kind is not None and issubclass(kind, KeyboardInterrupt):  # Ctrl-C was pressed twice
            _state.waiting = [number for number in _state.waiting if number != signal.SIGINT]
        if _state.depth == 0:
            _uninstall()
            deliver()
        elif kind is None or issubclass(kind, Exception):
            _state.where = self.before
            if self.before is Where.ANYWHERE:
                deliver()


class allowed:
    """A context in which signals are handled at once, for the user's code, which may hang.

    Args:
        where: With ``Where.USER_CODE``, a signal is still delayed while code of torch or of this
            package runs, until the context ends or the signal comes again. In a forward pass torch
            changes modes for every operator, and an exception there would not restore them.
    """

    def __init__(self, where: Where = Where.ANYWHERE) -> None:
        self.where = where

    def __enter__(self) -> None:
        self.active = _state.depth > 0 and _in_main_thread()
        if self.active:
            deliver()
            self.before, _state.where = _state.where, self.where

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self.active:
            _state.where = self.before
            if kind is None:
                deliver()


def deliver() -> None:
    """Handle the signals that were delayed."""
    if _in_main_thread():
        while _state.waiting:
            _handle(_state.waiting.pop(0), sys._getframe())


def _receive(number: int, frame: FrameType | None) -> None:
    """The handler while :class:`deferred` is open."""
    where, again = _state.where, number in _state.waiting
    if where is Where.ANYWHERE or (where is Where.USER_CODE and (again or _is_users(frame))):
        _state.where = Where.NOWHERE  # do not interrupt the clean-up after an exception
        _state.waiting = [waiting for waiting in _state.waiting if waiting != number]
        _handle(number, frame)
        _state.where = where
    else:
        _state.waiting.append(number)


def _handle(number: int, frame: FrameType | None) -> None:
    """Handle a signal as without :class:`deferred`."""
    handler = _state.previous.get(number)
    if callable(handler):
        handler(number, frame)
    else:  # the system's default: SIGTERM ends the process
        signal.signal(number, handler)
        signal.raise_signal(number)


def _is_users(frame: FrameType | None) -> bool:
    """Whether a frame runs user code, not torch's or ours; standard library frames are skipped."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_LIBRARIES):
            return False
        if not name.startswith(_PYTHON) or "-packages" in name:
            return True
        frame = frame.f_back
    return True


_LIBRARIES = (
    os.path.dirname(torch.__file__) + os.sep,
    str(Path(__file__).parents[2]) + os.sep,  # neuroinit
    contextlib.__file__,
)
_PYTHON = os.path.dirname(os.__file__) + os.sep


def _install() -> None:
    found: dict[int, Handler] = {number: signal.getsignal(number) for number in SIGNALS}
    # a handler that was not installed from Python cannot be restored
    _state.previous = {n: h for n, h in found.items() if h not in (None, signal.SIG_IGN)}
    try:
        for number in _state.previous:
            signal.signal(number, _receive)
    except BaseException:
        _uninstall()
        raise


def _uninstall() -> None:
    """Restore all handlers, also if a signal raises an exception meanwhile."""
    errors: list[BaseException] = []
    left = list(_state.previous.items())
    while left:
        try:
            number, handler = left[-1]
            signal.signal(number, handler)
            left.pop()
        except BaseException as error:
            errors.append(error)
    if errors:
        _state.waiting.clear()
        raise errors[0]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
