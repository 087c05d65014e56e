"""A small classifier, its data, and methods that differentiate twice."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import neuroinit as ni

BOUND = {"rule": ni.HeldNorm(), "gamma": 0.3}


def data(size: int = 16, count: int = 4, features: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Some batches for a classifier."""
    g = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, features, generator=g, dtype=torch.float64),
            torch.randint(3, (size,), generator=g),
        )
        for _ in range(count)
    ]


def network(*inner: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A small classifier with layers of the user's own."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *inner, nn.Linear(8, 3)).to(dtype)


METHODS: dict[str, ni.Initialization] = {
    "`NIO` with a bound": ni.NIO(steps=1, **BOUND),
    "`NIO.paper`": ni.NIO.paper(steps=1),
    "`GradInit`": ni.GradInit(steps=1, gamma=1e-3),  # below it needs first derivatives only
    "`MetaInit`": ni.MetaInit(steps=1),
}
