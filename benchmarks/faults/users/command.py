"""The command line: a model of one's own, errors of one line, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.users.checks import Case, sure

SOURCE = Path(__file__).parents[3] / "src"
MODEL = """
from torch import nn

def make(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, classes))

class Net(nn.Sequential):
    def __init__(self, num_classes):
        body = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*body, nn.Linear(4, num_classes))

def nothing(classes):
    return classes

def broken(classes):
    raise KeyError("no such width")

number = 3
"""
DATA = ("--data", "digits")


def _command(folder: Path, arguments: tuple[str, ...]) -> list[str]:
    (folder / "mine.py").write_text(MODEL)
    (folder / "empty.py").write_text("")
    (folder / "syntax.py").write_text("def make(:")
    return [sys.executable, "-m", "neuroinit", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def ends(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """The command ends with this code and, if it is not 0, one line with all of these words."""
    with tempfile.TemporaryDirectory() as name:
        command = _command(Path(name), arguments)
        found = subprocess.run(
            command, cwd=name, env=_environment(), capture_output=True, text=True, timeout=300
        )
    sure(found.returncode == code, f"code {found.returncode}: {found.stderr[-300:]}")
    sure("Traceback" not in found.stderr, f"a traceback: {found.stderr[-300:]}")
    missing = [word for word in words if word not in found.stderr + found.stdout]
    sure(not missing, f"no {missing} in {found.stderr[-300:]}")


def interrupted(delay: float) -> None:
    """Ctrl-C some seconds after the import of torch has begun: one line, code 130."""
    with tempfile.TemporaryDirectory() as name:
        command = _command(Path(name), ("demo",))
        process = subprocess.Popen(
            command,
            cwd=name,
            env=_environment(),
            stderr=subprocess.PIPE,
            text=True,
            stdout=subprocess.DEVNULL,
            preexec_fn=_heed,
        )
        while "torch" not in Path(f"/proc/{process.pid}/maps").read_text():
            time.sleep(0.001)  # Python itself is still starting
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    sure(process.returncode in (130, -signal.SIGINT), f"code {process.returncode}")
    sure("Traceback" not in error, f"a traceback: {error[-300:]}")


def _heed() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "`nio:steps=x`": (
        ("train", "--method", "nio:steps=x"),
        ("`nio:steps=x`", "`steps` should be an int"),
    ),
    "`nio:step=3`": (("train", "--method", "nio:step=3"), ("`nio:step=3`", "step")),
    "`nio:steps=-1`": (("train", "--method", "nio:steps=-1"), ("`nio:steps=-1`", "`steps`")),
    "`nio:gamma=`": (("train", "--method", "nio:gamma="), ("nio:gamma=",)),
    "`compare` with `nio:steps=x`": (("compare", "--methods", "nio:steps=x"), ("`nio:steps=x`",)),
    "a method that does not exist": (("train", "--method", "nix"), ("nix",)),
    "a file that does not exist": (("train", "--model", "my.py:make"), ("There is no file",)),
    "a file without the function": (("train", "--model", "empty.py:make"), ("make",)),
    "a file that is no Python": (("train", "--model", "syntax.py:make"), ("syntax.py",)),
    "a name that is no function": (("train", "--model", "mine.py:number"), ("number",)),
    "a function that returns no model": (
        ("train", "--model", "mine.py:nothing", *DATA),
        ("nothing",),
    ),
    "a function that raises": (
        ("train", "--model", "mine.py:broken", *DATA),
        ("no such width",),
    ),
}


def cases() -> Iterator[Case]:
    """Item 13."""
    for name, (arguments, words) in WRONG.items():
        yield Case(13, name, partial(ends, arguments, 1, words))
    for model in ("make", "Net"):
        arguments = ("init", "--model", f"mine.py:{model}", *DATA, "--method", "nio:steps=1")
        yield Case(13, f"a model of one's own, `{model}`", partial(ends, arguments, 0, ()))
    for tenth in (0, 1, 3, 6, 10, 15, 20, 30):
        name = f"Ctrl-C {tenth / 10} s after the import of torch has begun"
        yield Case(13, name, partial(interrupted, tenth / 10))
