"""Forward and backward passes: losses and gradients of pieces, and tests of the model; internal.

Read ``pieces.py`` first: one pass. Then ``trials.py``: what a model allows; ``planned.py``: the
passes of a whole plan; ``first_order.py``: gradients of sub-batches; ``second_order.py``: products
with the Hessian.
"""
