"""Rules and objectives of NIO under their public name; they are defined in ``nio/``."""

from neuroinit.methods.nio.common_factor import CommonFactor
from neuroinit.methods.nio.held_norm import HeldNorm
from neuroinit.methods.nio.objectives import (
    agreement,
    cosine,
    cosine_and_norm,
    distinct_cosine_and_sum,
    largest_norm,
    low_variance,
    low_variance_and_norm,
    mean_norm,
)
from neuroinit.methods.nio.rules import BoundedAscent, DerivativeRule, Rule

__all__ = [
    "BoundedAscent",
    "CommonFactor",
    "DerivativeRule",
    "HeldNorm",
    "Rule",
    "agreement",
    "cosine",
    "cosine_and_norm",
    "distinct_cosine_and_sum",
    "largest_norm",
    "low_variance",
    "low_variance_and_norm",
    "mean_norm",
]
