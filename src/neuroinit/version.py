"""The version, in a module of its own so that results can record it."""

__version__ = "0.1.0"
