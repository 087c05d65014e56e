"""A one-line progress bar on terminals."""

from __future__ import annotations

import sys
import time

DELAY = 2.0  # seconds before anything is shown


class Progress:
    """Shows ``label [#####-----] 12/40  text`` on standard error, once two seconds have passed.

    Args:
        label: The text before the bar.
        total: Number of steps.
        enabled: If false, nothing is shown.
    """

    def __init__(self, label: str, total: int, enabled: bool = True) -> None:
        self.label, self.total = label, total
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self.begun, self.shown = time.monotonic(), False

    def __enter__(self) -> Progress:
        return self

    def show(self, done: int, text: str = "") -> None:
        """Redraw the line: the bar, a text, and an estimate of the time left."""
        filled = 20 * done // max(1, self.total)
        bar = "#" * filled + "-" * (20 - filled)
        seconds = (time.monotonic() - self.begun) / max(1, done) * (self.total - done)
        left = f"  about {duration(seconds)} left" if 0 < done < self.total else ""
        self._write(f"{self.label} [{bar}] {done}/{self.total}  {text}{left}")

    def phase(self, text: str) -> None:
        """Redraw the line without a bar, for work that is not counted in steps."""
        self._write(f"{self.label}: {text}")

    def _write(self, line: str) -> None:
        if not self.enabled or time.monotonic() - self.begun < DELAY:
            return
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
        self.shown = True

    def __exit__(self, *error: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """``8 s``, ``3 min`` or ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
