"""A network, a batch, and the gradient norms of two overlapping sub-batches."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.utils import oracles
from tests.utils.moving import ni

OVERLAP = ni.NIO(steps=2, sub_batches=2, overlap=0.5)


def batch_of(size=12, features=6, classes=3):
    generator = torch.Generator().manual_seed(size)
    inputs = torch.randn(size, features, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(classes, (size,), generator=generator)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def true_norms(model, batch, loss_fn=F.cross_entropy, compute_loss=None):
    slices = oracles.sub_batch_slices_cover(12, 2, 0.5)
    return oracles.norms(oracles.gram(model, batch, slices, loss_fn, compute_loss))
