"""Ctrl-C while the ``neuroinit`` command imports torch: one line instead of a traceback.

The import takes seconds, and the command's own handler of ``KeyboardInterrupt`` runs only after it.
``cli/__init__.py`` therefore imports this module first, and it imports little. It does nothing in
other programs.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = "neuroinit: interrupted"


def exit_on_interrupt() -> None:
    """If this process is the ``neuroinit`` command, let Ctrl-C end it with one line.

    If a parent process has made this process ignore Ctrl-C, we do not change that.
    """
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_keyboard_interrupt() -> None:
    """Undo :func:`exit_on_interrupt`: Ctrl-C raises ``KeyboardInterrupt`` again."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command() -> bool:
    """Whether this is ``neuroinit ...`` or ``python -m neuroinit ...``.

    ``sys.orig_argv`` is what was typed. ``sys.argv`` alone does not tell: a worker process of the
    command inherits it.
    """
    script, typed = (sys.argv or [""])[0], sys.orig_argv
    stem, _ = os.path.splitext(os.path.basename(script))
    if stem == "__main__":
        return "-m" in typed and typed[typed.index("-m") :][1:2] == ["neuroinit"]
    return stem == "neuroinit" and script in typed


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(130)
