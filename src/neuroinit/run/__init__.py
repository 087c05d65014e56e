"""The optimization loop and its result; internal, the public names are in ``neuroinit``."""
