"""Replacements for torch's layers while a model is differentiated; internal."""
