"""Which lines of a project run, told apart by the test that runs them."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any


class Lines:
    """The lines of files below a folder that run while a test is on."""

    def __init__(self, root: str) -> None:
        self.root = root
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


def watch_child() -> None:
    """For processes that a test starts: what they run counts for that test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and "REACH_OUT" in os.environ:
        lines = Lines(os.environ["REACH_ROOT"])
        atexit.register(lines.write, os.environ["REACH_OUT"], {})
        lines.start(test)
