"""The paper's architectures, by name: :func:`build` and :func:`names`."""

from neuroinit.experiments.models.registry import build, names

__all__ = ["build", "names"]
