"""Global settings of torch, such as the attention kernels, that several threads change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class ProcessSwitch:
    """Changes a global setting of torch for as long as any thread needs the change.

    A context manager of torch saves the setting and restores it. If two threads overlap, the second
    saves the value that the first has set, and restores this value in the end. Here the first
    thread enters the context and the last one leaves it.

    Args:
        make: Makes the context manager of torch.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make, self._lock, self._users = make, threading.Lock(), 0
        self._open: AbstractContextManager[object] | None = None

    @contextmanager
    def turned(self) -> Iterator[None]:
        """A context in which the setting is changed."""
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
