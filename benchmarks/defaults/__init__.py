"""The studies by which the defaults of `NIO()` and `nio_` were chosen."""
