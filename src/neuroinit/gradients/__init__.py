"""Gradients of sub-batches, their Gram matrix, and derivatives by the scales; internal."""
