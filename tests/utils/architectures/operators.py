"""Modules with unusual operators: in place, attention, recurrent, checkpointed, compiled."""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.utils.architectures.batches import CLASSES
from tests.utils.architectures.parameters import plain


class InPlace(nn.Module):
    """Activations and sums overwrite their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True))
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(self.second(x).add_(x).relu_().mean((2, 3)))


class Normalized(nn.Module):
    """A normalization layer, with gains and biases moved off 1 and 0, follows a convolution."""

    def __init__(self, convolution: nn.Module, norm: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.convolution, self.norm, self.activation = convolution, norm, activation
        self.head = nn.Linear(4, CLASSES)
        for parameter in norm.parameters():
            nn.init.uniform_(parameter, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.norm(self.convolution(x)))
        return self.head(x if x.ndim == 2 else x.flatten(2).square().mean(2))


class TwoTowers(nn.Module):
    """The input is a tuple, and a Bilinear layer joins its halves."""

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Bilinear(4, 4, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(torch.sigmoid(self.join(*inputs)))


class Tokens(nn.Module):
    """Integer inputs: no gradient can flow to them, and a padding row gets none."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.head = plain(size=6)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        return self.head(x if x.ndim == 2 else x.mean(1))


class Sequences(nn.Module):
    """nn.LSTM and nn.GRU keep a private list of their weights, and dropout in a number."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head((x[0] if isinstance(x, tuple) else x).mean(1))


class Attention(nn.Module):
    """nn.MultiheadAttention calls a fused kernel, and its dropout is a number, not a module."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].square().mean(1))


class FusedAttention(nn.Module):
    """F.scaled_dot_product_attention, causal: no double backward but in its math form."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 4)).transpose(1, 3).unbind(2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.head(attended.transpose(1, 2).flatten(2).mean(1))


def transformer() -> nn.Module:
    """Fused attention, and dropout in three places of a layer."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, activation="gelu", batch_first=True)
    return Sequences(nn.TransformerEncoder(layer, num_layers=2), 8)


class Checkpointed(nn.Module):
    """Part of the forward is run again, from the module's own attributes, in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.first, x, use_reentrant=False))


def weight_norm(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """The weight is computed from other parameters in each forward."""
    return nn.Sequential(wrap(nn.Linear(4, 6)), nn.Tanh(), wrap(nn.Linear(6, CLASSES)))


def old_weight_norm() -> nn.Module:
    """The weight is a plain attribute with a graph behind it, so `deepcopy` of the model fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return weight_norm(torch.nn.utils.weight_norm)


def compiled() -> nn.Module:
    """Compiled as a whole: every name begins with `_orig_mod.`, and no double backward."""
    return torch.compile(plain().double(), backend="aot_eager")  # type: ignore[return-value]


def compiled_inside() -> nn.Module:
    """One sub-module of a plain model is compiled."""
    body = torch.compile(plain(nn.Softplus()).double(), backend="eager")
    return nn.Sequential(body, nn.Tanh(), nn.Linear(CLASSES, CLASSES))
