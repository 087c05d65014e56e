"""Models by name: :func:`build`, :func:`check_name` and :func:`names`."""

from neuroinit.experiments.models.registry import build, check_name, names

__all__ = ["build", "check_name", "names"]
