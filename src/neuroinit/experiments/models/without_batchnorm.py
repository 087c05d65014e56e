"""Replace every BatchNorm of a model by a learnable bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Bias(nn.Module):
    """Add one learnable number to every channel; initially zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Add the bias along dimension 1."""
        return x + self.bias.view(-1, *[1] * (x.dim() - 2))


def without_batchnorm(model: nn.Module) -> nn.Module:
    """Replace every BatchNorm of ``model`` by a learnable bias, in place.

    Raises:
        ValueError: There is no BatchNorm, or a subclass from another library, which may compute
            more than BatchNorm.

    Example:
        >>> without_batchnorm(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)))
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), bias=False)
          (1): Bias()
        )
    """
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} has no BatchNorm to replace: drop `-nobn`.")
    for parent, name, child in found:
        if not type(child).__module__.startswith("torch.nn."):
            raise ValueError(
                f"`{type(child).__name__}` is not torch's BatchNorm and cannot be replaced: "
                "drop `-nobn`."
            )
        setattr(parent, name, Bias(child.num_features))
    return model
