"""A zoo of small awkward modules, each with a batch and a loss."""

from tests.utils.architectures.broken import (
    BROKEN,
    CONSTANT_LOSS,
    LAZY,
    NAN_LOSS,
    NO_DOUBLE_BACKWARD,
    CubeOnce,
    cdist_has_double_backward,
)
from tests.utils.architectures.cases import INNER_GRADIENT, ZOO, case
from tests.utils.architectures.losses import WrittenNorm, penalty_loss, smooth
from tests.utils.architectures.operators import transformer

__all__ = [
    "BROKEN",
    "CONSTANT_LOSS",
    "INNER_GRADIENT",
    "LAZY",
    "NAN_LOSS",
    "NO_DOUBLE_BACKWARD",
    "ZOO",
    "CubeOnce",
    "WrittenNorm",
    "case",
    "cdist_has_double_backward",
    "penalty_loss",
    "smooth",
    "transformer",
]
