"""Switches of torch that hold for the whole process, such as the kernels of attention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class ProcessSwitch:
    """Turns a switch for as long as any thread needs it.

    A context manager of torch saves the switch and restores it. If two threads overlap, the second
    one saves what the first has set, and the switch stays turned for good. Here the first thread
    enters the context and the last one leaves it.

    Args:
        make: Makes the context manager.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._lock, self._users = make, threading.Lock(), 0
        self._open: AbstractContextManager[Any] | None = None

    @contextmanager
    def turned(self) -> Iterator[None]:
        """The switch is turned inside."""
        with self._lock:
            if self._users == 0:
                self._open = self._make()
                self._open.__enter__()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._open is not None:
                    self._open.__exit__(None, None, None)
