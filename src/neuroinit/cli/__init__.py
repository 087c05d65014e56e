"""The ``neuroinit`` command; internal, the command itself is public."""

from neuroinit.cli.interrupt import exit_on_interrupt

exit_on_interrupt()  # first, since the next line imports torch, which takes seconds

from neuroinit.cli.command import COMMANDS, main  # noqa: E402

__all__ = ["COMMANDS", "main"]
