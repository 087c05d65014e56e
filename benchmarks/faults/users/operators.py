"""Operators without a double backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuroinit as ni
from benchmarks.faults.users.checks import (
    Case,
    refused,
    sure,
    unchanged,
)
from benchmarks.faults.users.small import METHODS, data, network


def _bag(mode: str) -> tuple[nn.Module, list[Any], Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(10, 6, mode=mode), nn.Tanh(), nn.Linear(6, 3)).double()
    return model, [(torch.randint(10, (16, 5)), torch.randint(3, (16,))) for _ in range(3)], None


def _transcripts() -> tuple[nn.Module, list[Any], Any]:
    torch.manual_seed(0)
    batches = [(torch.randn(16, 12, 4).double(), torch.randint(1, 6, (16, 3))) for _ in range(3)]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        scores, n = model(batch[0]).log_softmax(-1).transpose(0, 1), len(batch[1])
        return F.ctc_loss(scores, batch[1], torch.full((n,), 12), torch.full((n,), 3))

    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6)).double(), batches, loss


class _Distances(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.centers, self.p = nn.Parameter(torch.randn(3, 8)), p

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, self.centers, p=self.p)


def _distances(p: float) -> tuple[nn.Module, list[Any], Any]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), _Distances(p)).double(), data(), None


def _margins() -> tuple[nn.Module, list[Any], Any]:
    torch.manual_seed(0)
    return network(), data(), lambda m, b: F.multi_margin_loss(m(b[0]), b[1], p=2)


NO_DOUBLE_BACKWARD: dict[str, tuple[Callable[[], tuple[nn.Module, list[Any], Any]], str]] = {
    "EmbeddingBag, mean": (partial(_bag, "mean"), "embedding_bag"),
    "EmbeddingBag, sum": (partial(_bag, "sum"), "embedding_bag"),
    "EmbeddingBag, max": (partial(_bag, "max"), "embedding_bag"),
    "CTC": (_transcripts, "ctc_loss"),
    "cdist": (partial(_distances, 2.0), "cdist"),
    "cdist, p = 1.5": (partial(_distances, 1.5), "cdist"),
    "multi_margin_loss": (_margins, "multi_margin_loss"),
}


def _named(make: Any, operator: str, method: ni.Initialization) -> None:
    model, batches, loss = make()
    with unchanged(model), refused(RuntimeError, operator, "engine='differences'"):
        ni.optimize(model, batches, method=method, compute_loss=loss)


def _by_differences(make: Any, operator: str) -> None:
    model, batches, loss = make()
    method = METHODS["`NIO` with a bound"]
    with unchanged(model):
        found = ni.optimize(model, batches, method=method, compute_loss=loss, engine="differences")
    sure(found.engine == "differences" and all(map(math.isfinite, found.scales.values())), "no")


def _by_default(make: Any, operator: str) -> None:
    model, batches, loss = make()
    with unchanged(model, but=("parameters",)):
        ni.nio_(model, batches, compute_loss=loss)


def cases() -> Iterator[Case]:
    """Item 8."""
    for name, (make, operator) in NO_DOUBLE_BACKWARD.items():
        for method in ("`NIO` with a bound", "`GradInit`", "`MetaInit`"):
            yield Case(8, f"{name}: {method}", partial(_named, make, operator, METHODS[method]))
        yield Case(8, f"{name}: `differences`", partial(_by_differences, make, operator))
        yield Case(8, f"{name}: `nio_`, first order", partial(_by_default, make, operator))
