"""Twelve networks that guess the next letter of a text: nothing was chosen by them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from neuroinit.experiments.models.small_networks import Activation, Residual

LETTERS, LENGTH = 65, 12  # kinds of letters, and how many of them are seen


class Embedded(nn.Module):
    """Letters as vectors, with their places: (samples, letters, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, width), nn.Embedding(LENGTH, width)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        return self.letter(x) + self.place.weight


class Turned(nn.Module):
    """A module that works on the places instead of the features, or on channels before places."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        """Turn, work, and turn back."""
        return torch.as_tensor(self.body(x.mT).mT)


class Last(nn.Module):
    """The features of the last letter."""

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features)."""
        return x[:, -1]


class States(nn.Module):
    """A recurrent network; all its states."""

    def __init__(self, cell: nn.RNNBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        """(samples, letters, features)."""
        return torch.as_tensor(self.cell(x)[0])


class Gated(nn.Module):
    """A convolution with a gate, as in WaveNet; its result is added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv1d(width, 2 * width, 3, padding=1), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The skip path and the branch."""
        value, gate = self.into(x).chunk(2, 1)
        return torch.add(x, self.out(torch.tanh(value) * torch.sigmoid(gate)))


class Dense(nn.Module):
    """Every convolution sees the input and the results of all before it."""

    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(width + k * growth, growth, 3, padding=1) for k in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """All of them side by side."""
        for layer in self.layers:
            x = torch.cat([x, nn.functional.silu(layer(x))], 1)
        return x


def perceptron(depth: int, width: int, activation: Activation) -> nn.Module:
    """Linear layers over all letters at once."""
    layers: list[nn.Module] = [Embedded(12), nn.Flatten()]
    for k in range(depth):
        layers += [nn.Linear(width if k else 12 * LENGTH, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, LETTERS))


def residual_perceptron(blocks: int, width: int) -> nn.Module:
    """Residual blocks with ReLU at their end, without normalization."""
    body = [
        Residual(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        for _ in range(blocks)
    ]
    stem = (Embedded(12), nn.Flatten(), nn.Linear(12 * LENGTH, width))
    return nn.Sequential(*stem, *body, nn.Linear(width, LETTERS))


def convolutions(width: int, *body: nn.Module, out: int | None = None) -> nn.Module:
    """Convolutions along the text; the last letter tells the next."""
    return nn.Sequential(Embedded(width), Turned(*body), Last(), nn.Linear(out or width, LETTERS))


def plain_convolutions(depth: int, width: int, activation: Activation) -> nn.Module:
    """Without skip paths."""
    pairs = [(nn.Conv1d(width, width, 3, padding=1), activation()) for _ in range(depth)]
    return convolutions(width, *(layer for pair in pairs for layer in pair))


def normalized_convolutions(blocks: int, width: int) -> nn.Module:
    """Residual, with BatchNorm."""
    body = [
        Residual(nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.GELU())
        for _ in range(blocks)
    ]
    return convolutions(width, *body)


def recurrent(cell: type[nn.RNNBase], width: int, layers: int) -> nn.Module:
    """A recurrent network over the letters."""
    states = States(cell(16, width, layers, batch_first=True))
    return nn.Sequential(Embedded(16), states, Last(), nn.Linear(width, LETTERS))


def transformer(blocks: int, width: int, first: bool) -> nn.Module:
    """torch's own, LayerNorm before or after, without dropout."""
    block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True, norm_first=first)
    body = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
    return nn.Sequential(Embedded(width), body, Last(), nn.Linear(width, LETTERS))


def mixer(blocks: int, width: int) -> nn.Module:
    """Perceptrons over places and over features in turn, each with LayerNorm before it."""
    body: list[nn.Module] = []
    for _ in range(blocks):
        places = Turned(nn.Linear(LENGTH, 24), nn.GELU(), nn.Linear(24, LENGTH))
        features = (nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        body += [Residual(nn.LayerNorm(width), places), Residual(nn.LayerNorm(width), *features)]
    return nn.Sequential(Embedded(width), *body, Last(), nn.Linear(width, LETTERS))


LETTER_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP, 5 GELU layers": lambda: perceptron(5, 64, nn.GELU),
    "MLP, 11 ReLU layers": lambda: perceptron(11, 48, nn.ReLU),
    "residual MLP, 16 ReLU blocks": lambda: residual_perceptron(16, 40),
    "convolutions, 6 tanh layers": lambda: plain_convolutions(6, 24, nn.Tanh),
    "convolutions, 10 SiLU layers": lambda: plain_convolutions(10, 20, nn.SiLU),
    "gated convolutions, 10 blocks": lambda: convolutions(20, *(Gated(20) for _ in range(10))),
    "convolutions, 8 blocks, BatchNorm": lambda: normalized_convolutions(8, 24),
    "dense convolutions, 7 layers": lambda: convolutions(16, Dense(16, 8, 7), out=72),
    "GRU, 2 layers": lambda: recurrent(nn.GRU, 40, 2),
    "RNN, 3 tanh layers": lambda: recurrent(nn.RNN, 40, 3),
    "transformer, 8 blocks, Post-LN": lambda: transformer(8, 24, first=False),
    "mixer, 6 blocks, Pre-LN": lambda: mixer(6, 24),
}
