"""scikit-learn's 1,797 handwritten digits of 8x8 pixels; no download is needed."""

from __future__ import annotations

import torch

from neuroinit.common.errors import needs_extra
from neuroinit.experiments.data.split import Batch, Split

HIGHEST = 16  # pixel values are integers from 0 to 16


def raw_digits() -> Split:
    """Load the digits with their pixel values, shuffled in a fixed order.

    Returns:
        Inputs ``(N, 1, 8, 8)`` in float32 with values from 0 to 16, and classes 0 to 9. Four fifths
        are for training.
    """
    with needs_extra("demo"):
        from sklearn.datasets import load_digits
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)[order]
    targets = torch.tensor(labels)[order]
    cut = len(order) * 4 // 5
    return Split((inputs[:cut], targets[:cut]), (inputs[cut:], targets[cut:]))


def digits() -> Split:
    """Load the digits, normalized with mean and standard deviation of the training data.

    Example:
        >>> inputs, targets = digits().train
        >>> inputs.shape, targets.shape
        (torch.Size([1437, 1, 8, 8]), torch.Size([1437]))
    """
    raw = raw_digits()
    mean, std = raw.train[0].mean(), raw.train[0].std()

    def normalized(part: Batch) -> Batch:
        return (part[0] - mean) / std, part[1]

    return Split(normalized(raw.train), normalized(raw.test))
