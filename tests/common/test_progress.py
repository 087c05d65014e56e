"""The progress bar: on terminals only, with the phase and the time left."""

import io
from types import SimpleNamespace

import pytest

from neuroinit.common import progress
from neuroinit.common.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    written = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=written))
    return written


def last_line(terminal):
    return terminal.getvalue().split("\x1b[2K")[-1]


def test_phase_and_time_left_are_shown(clock, terminal):
    with Progress("auto_", 40) as bar:
        clock[0] = 10.0
        bar.show(10, "trying LSUV")
        assert (
            last_line(terminal)
            == "auto_ [#####---------------] 10/40  trying LSUV  about 30 s left"
        )
        bar.phase("measuring")
        assert last_line(terminal) == "auto_: measuring"
    assert last_line(terminal) == ""


@pytest.mark.parametrize("done", [0, 40])
def test_no_time_is_guessed_without_a_step_or_at_the_end(clock, terminal, done):
    bar = Progress("auto_", 40)
    clock[0] = 10.0
    bar.show(done, "making LSUV")
    assert last_line(terminal).endswith("making LSUV")


def test_short_runs_show_nothing(clock, terminal):
    with Progress("NIO", 2) as bar:
        clock[0] = 1.0
        bar.show(1, "norm 2")
        bar.phase("measuring")
    assert terminal.getvalue() == ""


def test_files_and_pipes_get_nothing(clock, monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=written))
    bar = Progress("NIO", 2)
    clock[0] = 10.0
    bar.show(1)
    assert written.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (9000, "2.5 h")]
)
def test_durations_have_a_fitting_unit(seconds, text):
    assert duration(seconds) == text
