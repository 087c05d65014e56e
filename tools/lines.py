"""Which lines of a project run, told apart by the test that runs them."""

from __future__ import annotations

import atexit
import json
import mmap
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

LONGEST = 4096  # bytes of a test's name
NOW = "now"  # the file with the name of the test that is on


class Lines:
    """The lines of files below a folder that run while a test is on.

    Args:
        root: The folder.
        now: The file in which another process says which test is on; it may change at any time.
    """

    def __init__(self, root: str, now: Path | None = None) -> None:
        self.root = root
        self.now = None if now is None else _mapped(now)
        self.known: dict[str, str | None] = {}
        self.found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.test = ""

    def start(self, test: str) -> None:
        """Note the lines of a test from here on."""
        self.test = test
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> None:
        """Note no more."""
        sys.settrace(None)
        threading.settrace(None)

    def write(self, folder: str, seconds: dict[str, float]) -> None:
        """One file a process."""
        found = {
            test: {file: sorted(lines) for file, lines in files.items()}
            for test, files in self.found.items()
        }
        record = {"lines": found, "seconds": seconds}
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(record))

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.now is not None:
            self.test = self.now[:].rstrip(b"\0").decode()
        name = frame.f_code.co_filename
        if name not in self.known:
            inside = name.startswith(self.root)
            self.known[name] = os.path.relpath(name, self.root) if inside else None
        return None if self.known[name] is None else self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = self.known[frame.f_code.co_filename]
        if name is not None:
            self.found[self.test][name].add(frame.f_lineno)
        return self._line


def tell(folder: str, test: str) -> None:
    """Say which test is on, for :func:`watch_child`."""
    path = Path(folder, NOW)
    with path.open("r+b" if path.exists() else "wb") as file:  # it is mapped: never make it shorter
        file.write(test.encode().ljust(LONGEST, b"\0"))


def watch_child() -> None:
    """For processes that tests start: what they run counts for the test that is on."""
    folder = os.environ.get("REACH_OUT", "")
    if folder and Path(folder, NOW).exists():
        lines = Lines(os.environ["REACH_ROOT"], Path(folder, NOW))
        atexit.register(lines.write, folder, {})
        lines.start("")


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), LONGEST, access=mmap.ACCESS_READ)
