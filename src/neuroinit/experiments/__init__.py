"""The paper's experiments and the demo; needs ``pip install "neuroinit[experiments]"``."""
