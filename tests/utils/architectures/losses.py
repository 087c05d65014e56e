"""Losses of unusual kinds, and models for them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.utils.architectures.batches import CLASSES, VOCABULARY, Case, vectors
from tests.utils.architectures.parameters import plain


class DictOutput(nn.Module):
    """The output is a dict with the loss's parts in it, and a method takes part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.body(x), "features": self.body[0](x)}

    def penalty(self) -> Tensor:
        return torch.stack([p.square().sum() for p in self.parameters()]).sum()


class DictBatch(nn.Module):
    """Called by keywords, like a Hugging Face model; returns per-sample losses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 6)
        self.head = plain(size=6)

    def forward(self, *, ids: Tensor, extra: dict, labels: Tensor) -> dict[str, Tensor]:
        embedded = self.embedding(ids) * extra["mask"].unsqueeze(-1)
        losses = F.cross_entropy(self.head(embedded.mean(1)), labels, reduction="none")
        return {"losses": losses}


def penalized_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A scalar: cross entropy of a dict output, plus a term in the parameters alone."""
    outputs = model(batch[0])
    loss = F.cross_entropy(outputs["logits"], batch[1]) + 0.1 * outputs["features"].square().mean()
    return loss + 0.01 * model.penalty()


def per_sample_loss(model: Any, batch: dict[str, Any]) -> Tensor:
    """One loss per sample."""
    return model(**batch)["losses"]


def contrastive_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Each sample is to find its noisy self among the samples of the batch."""
    first, second = F.normalize(model(batch[0]), dim=1), F.normalize(model(batch[0] ** 2), dim=1)
    return F.cross_entropy(first @ second.t(), torch.arange(len(first), device=first.device))


def penalty_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A gradient penalty: the loss takes a gradient by the inputs."""
    x = batch[0].requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return F.cross_entropy(output, batch[1]) + (slope.norm(dim=1) - 1).square().mean()


def transformed_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A gradient for every sample by ``torch.func``, as physics-informed networks take it."""
    slopes = torch.func.vmap(torch.func.grad(lambda x: model(x[None]).square().sum()))(batch[0])
    return F.cross_entropy(model(batch[0]), batch[1]) + slopes.square().mean()


def tangent_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A directional derivative by forward-mode differentiation."""
    output, tangent = torch.func.jvp(model, (batch[0],), (torch.ones_like(batch[0]),))
    return F.cross_entropy(output, batch[1]) + tangent.square().mean()


class WrittenNorm(nn.Module):
    """Layer normalization by plain operators; torch's own has a wrong third derivative (2.13)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * (variance + 1e-5).rsqrt() * self.weight + self.bias


def smooth(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), norm, nn.Softplus(), nn.Linear(6, CLASSES))


def low_precision(name: str, dtype: torch.dtype) -> Case:
    """Parameters and inputs are not float64."""

    def build() -> nn.Module:
        first, head = nn.Linear(4, 6), nn.Linear(6, CLASSES)
        return nn.Sequential(first, nn.LayerNorm(6), nn.GELU(), head).to(dtype)

    return Case(name, build, vectors(4, dtype=dtype))
