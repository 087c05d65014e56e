"""A one-line progress bar on terminals."""

from __future__ import annotations

import sys
import time
from types import TracebackType

DELAY = 2.0  # seconds before anything is shown


class Progress:
    """Shows ``label [#####-----] 12/40  text`` on standard error, once two seconds have passed.

    Args:
        label: What is running.
        total: Number of steps.
        enabled: ``False`` shows nothing at all.
    """

    def __init__(self, label: str, total: int, enabled: bool = True) -> None:
        self.label, self.total = label, total
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self.begun, self.shown = time.monotonic(), False

    def __enter__(self) -> Progress:
        return self

    def show(self, done: int, text: str = "") -> None:
        """Redraw the line."""
        elapsed = time.monotonic() - self.begun
        if not self.enabled or elapsed < DELAY:
            return
        filled = 20 * done // max(1, self.total)
        bar = "#" * filled + "-" * (20 - filled)
        left = elapsed / max(1, done) * (self.total - done)
        line = f"{self.label} [{bar}] {done}/{self.total}  {text}  {left:.0f} s left"
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
        self.shown = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
