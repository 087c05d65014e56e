"""Initializations that draw new values and need no data."""
