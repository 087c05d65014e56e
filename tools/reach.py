"""A pytest plugin for `make mutants`: notes which lines tests reach, and runs a choice of tests.

``REACH_OUT`` names a folder: every process writes there which lines of files below ``REACH_ROOT``
each test ran. ``REACH_CHOICE`` names a JSON file with ``{test: seconds}``: only these tests run, in
this order, each with a time limit; the first that fails is named in a file with the ending
``.failed``.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

PATIENCE = 10.0  # seconds of processor time for a test that took none; tenfold its time besides


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


class Watch:
    """Runs all tests, and notes what each reaches; only tests that pass count."""

    def __init__(self, folder: str, root: str) -> None:
        self.folder, self.lines = folder, Lines(root)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set-up, call and tear-down; processor time, because the machine may be busy."""
        begun = sum(os.times()[:4])  # with the processes that it starts
        self.lines.start(item.nodeid)
        try:
            return (yield)
        finally:
            self.lines.stop()
            self.seconds[item.nodeid] = sum(os.times()[:4]) - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Skipped and failing tests are not used."""
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        passed = {t: s for t, s in self.seconds.items() if t not in self.failed}
        self.lines.write(self.folder, passed)


class Choice:
    """Runs some tests in an order of their own, and says which one failed first."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.seconds: dict[str, float] = json.loads(self.path.read_text())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the chosen ones, in their order."""
        collected = {item.nodeid: item for item in items}
        items[:] = [collected[test] for test in self.seconds if test in collected]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """An endless loop is a failure."""
        signal.signal(signal.SIGPROF, _too_long)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE + 10 * self.seconds[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first failure is the one that counts."""
        if report.failed:
            self.path.with_suffix(".failed").write_text(report.nodeid)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("The test takes much longer than without the change.")


def watch_child() -> None:
    """For processes that a test starts: what they run counts for that test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and "REACH_OUT" in os.environ:
        lines = Lines(os.environ["REACH_ROOT"])
        atexit.register(lines.write, os.environ["REACH_OUT"], {})
        lines.start(test)


def pytest_configure(config: pytest.Config) -> None:
    """Watch or choose, as the environment says."""
    if "REACH_OUT" in os.environ:
        config.pluginmanager.register(Watch(os.environ["REACH_OUT"], os.environ["REACH_ROOT"]))
    if "REACH_CHOICE" in os.environ:
        config.pluginmanager.register(Choice(os.environ["REACH_CHOICE"]))
