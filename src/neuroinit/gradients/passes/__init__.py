"""Passes through the model: losses and gradients of pieces, and what is tried about a model."""
