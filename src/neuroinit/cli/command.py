"""The ``neuroinit`` command: its subcommands, exit codes and errors."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence

from neuroinit.cli.compare import compare
from neuroinit.cli.demo import demo
from neuroinit.cli.init import init
from neuroinit.cli.interrupt import INTERRUPTED, raise_keyboard_interrupt
from neuroinit.cli.report import report
from neuroinit.cli.reproduce import reproduce
from neuroinit.cli.train import train
from neuroinit.common.errors import needs_extra
from neuroinit.version import __version__

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "report": report,
    "train": train,
    "init": init,
    "compare": compare,
    "reproduce": reproduce,
}
TEXTS = {name: function.__doc__ or "" for name, function in COMMANDS.items()}  # none with -OO
DESCRIPTION = (
    "Optimize the initialization of any PyTorch model before training it. "
    "`neuroinit COMMAND --help` shows the options of a command. `neuroinit --version` prints the "
    "version, `neuroinit --tyro-print-completion bash` (or zsh) a script for shell completion. "
    "With `--debug`, an error shows its traceback."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The words after ``neuroinit``; those of the command line by default. With
            ``--debug`` among them, errors are raised.

    Returns:
        The exit code: 0; 1 after an error, with one line on standard error; 130 after Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"neuroinit {__version__}")
        return 0
    try:
        raise_keyboard_interrupt()
        with warnings.catch_warnings():  # which also restores `showwarning`
            warnings.showwarning = _show_warning
            _parse_and_run([argument for argument in given if argument != "--debug"])
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130
    except Exception as error:
        if "--debug" in given:
            raise
        print(f"neuroinit: {_line(error)}", file=sys.stderr)
        return 1
    return 0


def _line(error: Exception) -> str:
    """One line about an error; with its type if the text alone says nothing."""
    text = " ".join(str(error).split())
    told = text and not isinstance(error, KeyError)  # such as "'weight'"
    return text if told else f"{type(error).__name__} {text}".rstrip()


def _show_warning(message: Warning | str, *place: object, **more: object) -> None:
    """One line, without the place in the source, which is that of tyro."""
    print(f"neuroinit: warning: {message}", file=sys.stderr)


def _parse_and_run(arguments: list[str]) -> None:
    with needs_extra("cli"):
        import tyro
    listed = not arguments or arguments[0] not in COMMANDS  # help then lists all commands
    for name, function in COMMANDS.items():
        # tyro wraps long lines, but also keeps line breaks: put every argument on one line
        text = re.sub(r"\n {12}", " ", TEXTS[name])
        function.__doc__ = text.splitlines()[0] if listed and text else text
    tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="neuroinit",
        description=DESCRIPTION,
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone),
    )
