"""Runs of `neuroinit reproduce` whose records are kept."""
