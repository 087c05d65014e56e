"""Ctrl-C and SIGTERM wait where something is half done, and are never lost."""

import os
import random
import signal
import threading
import time

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.common.process.signals import Where, allowed, deferred, deliver
from tests.utils.interrupts import CALLS, left_behind, lines_of, process_state
from tests.utils.snapshots import assert_unchanged, snapshot


@pytest.fixture(autouse=True)
def _nothing_left():
    before = process_state()
    yield
    assert process_state() == before


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_a_signal_waits_until_the_outermost_block_ends():
    def work():
        with deferred():
            with deferred():
                interrupt()
                seen.append("inner")
            seen.append("outer")
        seen.append("never")

    seen = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["inner", "outer"]


def test_a_signal_is_handled_where_it_is_allowed():
    def work():
        with deferred():
            with allowed():
                interrupt()
                seen.append("never")
            seen.append("never")

    seen = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == []


def test_a_signal_that_waits_is_handled_where_it_is_allowed():
    def work():
        with deferred():
            interrupt()
            seen.append("waiting")
            with allowed():
                seen.append("never")

    seen = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["waiting"]


def test_clean_up_after_an_interrupt_is_not_interrupted():
    def work():
        with deferred(), allowed():
            try:
                interrupt()
            finally:
                interrupt()
                seen.append("cleaned")

    seen = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["cleaned"]


def test_code_of_torch_runs_to_its_end():
    def work():
        with deferred():
            with allowed(Where.USER_CODE):
                code_of_torch(seen)
            seen.append("never")

    text = "def f(seen):\n signal.raise_signal(2)\n seen.append('to its end')"
    place = os.path.join(os.path.dirname(torch.__file__), "somewhere.py")
    namespace = {"signal": signal}
    exec(compile(text, place, "exec"), namespace)
    code_of_torch, seen = namespace["f"], []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["to its end"]


def test_sigterm_goes_to_the_handler_that_was_there():
    def leave(number, frame):
        raise SystemExit(number)

    def work():
        with deferred():
            signal.raise_signal(signal.SIGTERM)
            seen.append("waiting")

    before, seen = signal.signal(signal.SIGTERM, leave), []
    try:
        with pytest.raises(SystemExit, match="15"):
            work()
        assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["waiting"]


def test_a_handler_that_does_not_raise_is_called_once():
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        with deferred():
            interrupt()
            deliver()
            with allowed():
                interrupt()
            interrupt()
            assert len(calls) == 2
        assert len(calls) == 3
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_not_concerned():
    def work():
        with deferred(), allowed():
            found.append(signal.getsignal(signal.SIGINT))

    found = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("where", ["forward", "loader", "callback"])
def test_code_of_the_user_that_hangs_can_be_interrupted(where, digits_like):
    woken = []

    def hang(*_):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(20)
        woken.append(where)

    class Hanging(nn.Linear):
        def forward(self, x):
            if where == "forward":
                hang()
            return super().forward(x)

    def loader():
        yield digits_like[0]
        if where == "loader":
            hang()
        yield from digits_like

    model = Hanging(4, 3)
    before = snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        ni.nio_(model, loader(), steps=4, on_step=hang if where == "callback" else None)
    assert not woken
    assert_unchanged(before, model)


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_line_leaves_nothing_behind(name):
    lines = lines_of(name)
    chosen = random.Random(0).sample(range(1, lines), 12)
    for at in chosen:
        ended, left = left_behind(name, at)
        assert ended != "lost", f"at line {at}"
        assert left == [], f"at line {at}"
