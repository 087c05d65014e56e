"""The paper's experiments and the demo; internal, the command ``neuroinit`` runs them.

They need ``pip install "neuroinit[experiments]"``.
"""
