"""The paper's architectures, by name: :func:`build`, :func:`maker` and :func:`names`."""

from neuroinit.experiments.models.registry import build, maker, names

__all__ = ["build", "maker", "names"]
