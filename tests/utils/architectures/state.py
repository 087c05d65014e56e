"""Modules with buffers, counters and random numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.utils.architectures.batches import CLASSES
from tests.utils.architectures.operators import Normalized
from tests.utils.architectures.parameters import plain


class FunctionalDropout(nn.Module):
    """Dropout without a module, in a module that has parameters of its own."""

    def __init__(self, p: float = 0.3) -> None:
        super().__init__()
        self.p = p
        self.weight = nn.Parameter(torch.randn(6, 4) / 2)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(torch.tanh(x @ self.weight.t()), self.p, self.training))


class DropPath(nn.Module):
    """Drops whole samples of a residual branch at random; not an nn.Dropout of any kind."""

    def __init__(self, drop_prob: float = 0.3) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = 1 - self.drop_prob
        return x * x.new_empty(x.shape[0], 1).bernoulli_(keep) / keep


class RunningBuffers(nn.Module):
    """A forward changes one buffer in place and another by reassignment."""

    in_place: Tensor
    reassigned: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()
        self.register_buffer("in_place", torch.zeros(4))
        self.register_buffer("reassigned", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        shift = 0.1 * self.in_place.clone() + 0.1 * self.reassigned
        self.in_place.add_(x.detach().mean(0))
        self.reassigned = self.reassigned + 1
        return self.body(x + shift)


class Counting(nn.Module):
    """A forward changes a plain attribute, and keeps its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain(nn.SiLU())
        self.calls = 0
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = self.body(x)
        return self.last


def batch_norm_1d() -> nn.Module:
    """Samples see each other, and the running statistics change in a forward."""
    return Normalized(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())


def eval_batch_norm() -> nn.Module:
    """The user left the model in eval mode."""
    return batch_norm_1d().eval()
