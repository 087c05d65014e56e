"""The ``neuroinit`` command."""

from neuroinit.cli.command import COMMANDS, main

__all__ = ["COMMANDS", "main"]
