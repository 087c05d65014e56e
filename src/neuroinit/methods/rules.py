"""Rules and objectives of NIO under their public name; they are defined in ``nio/rules.py``."""

from neuroinit.methods.nio.rules import (
    BoundedAscent,
    HeldNorm,
    Rule,
    cosine,
    cosine_and_norm,
    distinct_cosine_and_sum,
    largest_norm,
    low_variance,
    low_variance_and_norm,
    mean_norm,
)

__all__ = [
    "BoundedAscent",
    "HeldNorm",
    "Rule",
    "cosine",
    "cosine_and_norm",
    "distinct_cosine_and_sum",
    "largest_norm",
    "low_variance",
    "low_variance_and_norm",
    "mean_norm",
]
