"""Measurements: what a step costs, and the evidence behind the defaults."""
