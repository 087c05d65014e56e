"""The usual loss of a classifier for all pieces of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from neuroinit.common.batches import Data, Interval
from neuroinit.kernels.losses import means_of_slices


def cross_entropies(
    loss_fn: object, output: Data, target: Data, pieces: Sequence[Interval]
) -> Tensor | None:
    """The cross entropy of every piece, on a CPU by one call for all samples.

    Statistics with the agreement of 8 sub-batches take 5 calls in place of 40, and 0.3 training
    steps of the demo network less. ``None`` for other losses, or if a mean leaves out samples.

    Args:
        loss_fn: The user's loss.
        output: The model's output for all samples, ``(samples, classes)``.
        target: Their classes, ``(samples,)``.
        pieces: The samples of every piece, ``(start, stop)``.
    """
    if loss_fn is not F.cross_entropy or not isinstance(output, Tensor):
        return None
    if output.device.type != "cpu" or output.dtype not in (torch.float32, torch.float64):
        return None
    plain = isinstance(target, Tensor) and target.dim() == 1 and not target.is_floating_point()
    if not plain or output.dim() != 2 or bool((target < 0).any()):
        return None
    losses = F.cross_entropy(output, target, reduction="none")
    return means_of_slices(losses, [slice(*piece) for piece in pieces])
