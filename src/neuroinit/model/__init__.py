"""A model and its loss as functions of the scaled parameters; internal.

Read ``problem.py`` first, then ``point.py`` and ``session.py``. A problem makes points, and a point
opens sessions of its problem, so their types refer to each other.
"""
