"""Modules with unusual parameters: tied, frozen, unused, used twice, in containers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.utils.architectures.batches import CLASSES, VOCABULARY


class TiedEmbedding(nn.Module):
    """The output head is the embedding's own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, VOCABULARY)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embedding(ids))).mean(1))


class TiedLinear(nn.Module):
    """Two Linear modules share one Parameter, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Unused(nn.Module):
    """One parameter never meets the loss, and one has no elements."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(5, 2)
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.body = plain()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(torch.cat([x, self.empty.to(x)]))


class Residual(nn.Module):
    """A residual branch and a head."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x + self.branch(x)))


class Bare(nn.Module):
    """Parameters on the root itself, named neither weight nor bias; one is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(6, 4).t())
        self.out = nn.Parameter(torch.randn(6, CLASSES) / 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.matrix) @ self.out


class Scaled(nn.Module):
    """The output times a factor: a 0-dimensional parameter, 0 (constant loss), or nan."""

    def __init__(self, factor: float | nn.Parameter) -> None:
        super().__init__()
        self.body = plain()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.factor


class UsedTwice(nn.Module):
    """One sub-module runs twice in a forward, and is registered under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.again = self.step
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.again(self.step(x)))


class Containers(nn.Module):
    """Parameters live in a ParameterList and a ParameterDict, under numbers and odd keys."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(4, 4) / 2 for _ in range(3)])
        self.named = nn.ParameterDict({"to logits": torch.randn(4, CLASSES), "äöü": torch.ones(4)})

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = F.silu(x @ weight)
        return (x * self.named["äöü"]) @ self.named["to logits"]


class DeepResidual(nn.Module):
    """24 residual blocks without normalization: the gradient explodes from Kaiming."""

    def __init__(self, width: int = 7, blocks: int = 24) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.head = nn.Linear(width, CLASSES)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.kaiming_normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = x + outer(F.relu(inner(x)))
        return self.head(x)


def plain(activation: nn.Module | None = None, size: int = 4) -> nn.Sequential:
    """Two Linear layers: nothing is awkward here."""
    return nn.Sequential(nn.Linear(size, 6), activation or nn.Tanh(), nn.Linear(6, CLASSES))


def frozen() -> nn.Module:
    """A whole layer and one more bias do not require gradients."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.GELU(), plain(size=6))
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def zero_bias() -> nn.Module:
    """Every bias is all zero, as after most initializations."""
    model = plain()
    nn.init.zeros_(model[0].bias)
    nn.init.zeros_(model[2].bias)
    return model


def zero_gain() -> nn.Module:
    """A zero gain ends the residual branch, so the branch has a gradient of exactly zero."""
    model = Residual(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4))
    nn.init.zeros_(model.branch[2].weight)
    return model


def nested() -> nn.Module:
    """Sequentials in Sequentials, with an empty one."""
    inner = nn.Sequential(nn.Sequential(nn.Linear(4, 5), nn.ELU()), nn.Sequential())
    return nn.Sequential(inner, nn.Sequential(nn.Sequential(nn.Linear(5, CLASSES))))
