"""Replacements for torch's layers while a model is differentiated; internal.

Read ``context.py`` first, then ``function_mode.py``, then the layers.
"""
