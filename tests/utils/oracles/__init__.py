"""Slow, obvious float64 oracles: ordinary autograd, one graph, everything flattened."""

from tests.utils.oracles.algorithms import ReferenceAdam, nio_paper, nio_reference
from tests.utils.oracles.derivative import scale_gradient, twice_differentiable
from tests.utils.oracles.gradients import Losses, gram, layer_grams, trainable, training_copy
from tests.utils.oracles.measures import (
    agreement,
    contrast_gram,
    cosine,
    gradsign,
    leaves,
    norm,
    norm_ratio,
    norms,
    theta,
    variance,
    with_permuted_targets,
)
from tests.utils.oracles.sub_batches import (
    cut,
    sub_batch_slices_cover,
    sub_batch_slices_paper,
    sub_batch_slices_reference,
)

__all__ = [
    "Losses",
    "ReferenceAdam",
    "agreement",
    "contrast_gram",
    "cosine",
    "cut",
    "gradsign",
    "gram",
    "layer_grams",
    "leaves",
    "nio_paper",
    "nio_reference",
    "norm",
    "norm_ratio",
    "norms",
    "scale_gradient",
    "sub_batch_slices_cover",
    "sub_batch_slices_paper",
    "sub_batch_slices_reference",
    "theta",
    "trainable",
    "training_copy",
    "twice_differentiable",
    "variance",
    "with_permuted_targets",
]
