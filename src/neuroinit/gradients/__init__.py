"""Gradients of sub-batches, their Gram matrix, and derivatives by the scales; internal.

Read ``measures.py`` first, which has the objectives' arguments, then ``sub_batches.py`` and
``plan.py``, then ``passes/``, which computes gradients. ``collectors.py`` and ``directions.py`` go
from gradients to an objective and back, and ``engines.py`` puts all this together, with
``streamed_products.py``. ``hessian.py``, for GradInit and MetaInit, and ``agreement.py`` build on
these; ``statistics/`` is what users see.
"""
