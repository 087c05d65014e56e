"""Ctrl-C while the command still imports torch."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import neuroinit

SOURCE = Path(neuroinit.__file__).parents[1]
TORCH = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
SCRIPT = "import sys\nfrom neuroinit.cli import main\nsys.exit(main())\n"


@pytest.fixture
def interrupted(tmp_path):
    """Runs a program whose `import torch` presses Ctrl-C."""
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "neuroinit").write_text(SCRIPT)  # what pip installs as the command
    (tmp_path / "training.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE}"}

    def run(*arguments, **options):
        command = [sys.executable, *arguments]
        options = {"capture_output": True, "text": True, "timeout": 50, **options}
        return subprocess.run(command, cwd=tmp_path, env=environment, **options)

    return run


@pytest.mark.parametrize("arguments", [("neuroinit", "demo"), ("-m", "neuroinit", "demo")])
def test_the_command_ends_with_one_line(interrupted, arguments):
    found = interrupted(*arguments)
    assert (found.returncode, found.stderr) == (130, "neuroinit: interrupted\n")


@pytest.mark.parametrize("arguments", [("training.py",), ("-c", "import neuroinit.cli")])
def test_other_programs_get_their_keyboard_interrupt(interrupted, arguments):
    assert "KeyboardInterrupt" in interrupted(*arguments).stderr


def test_a_program_that_ignores_interrupts_goes_on_ignoring_them(interrupted, tmp_path):
    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    (tmp_path / "torch.py").write_text(TORCH.replace("time.sleep(60)", "raise SystemExit(7)"))
    assert interrupted("-m", "neuroinit", "demo", preexec_fn=ignore).returncode == 7


def test_the_running_command_raises_keyboard_interrupt(tmp_path):
    """When the imports are done, the command restores and reports by itself."""
    code = (
        "import os, signal, sys; sys.argv = ['neuroinit']\n"
        "sys.orig_argv.append('neuroinit')\n"
        "from neuroinit import cli\n"
        "from neuroinit.cli import command\n"
        "def press(arguments):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    finally:\n"
        "        print('restored', flush=True)\n"
        "command._parse_and_run = press\n"
        "sys.exit(cli.main(['demo']))\n"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (found.returncode, found.stdout) == (130, "restored\n")
    assert found.stderr == "neuroinit: interrupted\n"
