"""Choosing and comparing initializations; internal, the public names are in ``neuroinit``."""
