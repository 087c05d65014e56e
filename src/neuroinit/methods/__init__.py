"""Initializations: one file for each paper, and what they share."""
