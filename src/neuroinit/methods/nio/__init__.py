"""NIO: the method, its rules and the paper's presets."""

from neuroinit.methods.nio.method import NIO

__all__ = ["NIO"]
