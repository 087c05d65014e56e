"""Experiments that a reader can repeat; needs ``pip install "neuroinit[experiments]"``."""
