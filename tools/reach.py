"""A pytest plugin for `make mutants`: notes which lines tests reach, and runs a choice of tests.

``REACH_OUT`` names a folder: every process writes there which lines of files below ``REACH_ROOT``
each test ran. ``REACH_CHOICE`` names a JSON file with ``{test: seconds}``: only these tests run, in
this order, each with a time limit; the first that fails is named in a file with the ending
``.failed``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tools.lines import Lines, tell

PATIENCE = 10.0  # seconds of processor time for a test that took none; tenfold its time besides


class Watch:
    """Runs all tests, and notes what each reaches; only tests that pass count."""

    def __init__(self, folder: str, root: str) -> None:
        self.folder, self.lines = folder, Lines(root)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set-up, call and tear-down; processor time, because the machine may be busy."""
        begun = processor_seconds()
        tell(self.folder, item.nodeid)
        self.lines.start(item.nodeid)
        try:
            return (yield)
        finally:
            self.lines.stop()
            self.seconds[item.nodeid] = processor_seconds() - begun

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


def processor_seconds() -> float:
    """Of this process and of those that it has started, whether they have ended or not."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = path.read_text().rpartition(")")[2].split()  # the third and later ones
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(values[3]) == os.getsid(0):
            ticks += sum(int(value) for value in values[11:15])  # of its own and of its children
    return ticks / os.sysconf("SC_CLK_TCK")


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("The test takes much longer than without the change.")


def pytest_configure(config: pytest.Config) -> None:
    """Watch or choose, as the environment says."""
    if "REACH_OUT" in os.environ:
        config.pluginmanager.register(Watch(os.environ["REACH_OUT"], os.environ["REACH_ROOT"]))
    if "REACH_CHOICE" in os.environ:
        config.pluginmanager.register(Choice(os.environ["REACH_CHOICE"]))
