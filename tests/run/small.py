"""A small network, and batches of any size."""

import torch
from torch import nn


def network(*inner):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *inner, nn.Linear(8, 3))


def batches_of(size, count=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 4, generator=generator), torch.randint(3, (size,), generator=generator))
        for _ in range(count)
    ]
