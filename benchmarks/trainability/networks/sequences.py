"""Seven networks that tell which kind of token a short sequence has most of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.trainability.networks.letters import Last, States, Turned
from benchmarks.trainability.networks.other import Mean
from neuroinit.experiments.models.small_networks import Activation, Residual

KINDS, TOKENS = 9, 10  # kinds of tokens, and how many of them a sequence has
CLASSES = 4  # the kinds that count


class Read(nn.Module):
    """Tokens as vectors, with learned places: (samples, tokens, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(KINDS, width)
        self.place = nn.Parameter(0.1 * torch.randn(TOKENS, width))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        return torch.add(self.token(x), self.place)


class Largest(nn.Module):
    """The largest value of each feature."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector a sequence."""
        return x.amax(1)


class Attention(nn.Module):
    """Self-attention of several heads, nothing around it."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at every token."""
        return torch.as_tensor(self.attend(x, x, x, need_weights=False)[0])


class Pooled(nn.Module):
    """A mean over tokens with learned weights, a head each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, heads))

    def forward(self, x: Tensor) -> Tensor:
        """All heads side by side."""
        return torch.as_tensor(self.score(x).softmax(1).mT @ x).flatten(1)


def recurrent(cell: type[nn.RNNBase], width: int, layers: int, both: bool) -> nn.Module:
    """The last state of a recurrent network; the largest values if it reads both ways."""
    states = States(cell(20, width, layers, batch_first=True, bidirectional=both))
    seen = Largest() if both else Last()
    return nn.Sequential(Read(20), states, seen, nn.Linear(width * (1 + both), CLASSES))


def post_norm(blocks: int, width: int) -> nn.Module:
    """torch's own transformer, LayerNorm after each residual sum, without dropout."""
    block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
    body = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
    return nn.Sequential(Read(width), body, Mean(), nn.Linear(width, CLASSES))


def no_norm(blocks: int, width: int) -> nn.Module:
    """A transformer without normalization."""
    body: list[nn.Module] = []
    for _ in range(blocks):
        perceptron = (nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))
        body += [Residual(Attention(width)), Residual(*perceptron)]
    return nn.Sequential(Read(width), *body, Mean(), nn.Linear(width, CLASSES))


def dilated(dilations: tuple[int, ...], width: int) -> nn.Module:
    """Residual blocks of two dilated convolutions, without normalization."""
    body = [
        Residual(
            nn.Conv1d(width, width, 3, padding=d, dilation=d),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=d, dilation=d),
            nn.ReLU(),
        )
        for d in dilations
    ]
    return nn.Sequential(Read(width), Turned(*body), Mean(), nn.Linear(width, CLASSES))


def perceptron(depth: int, width: int, activation: Activation) -> nn.Module:
    """Linear layers over all tokens at once."""
    layers: list[nn.Module] = [Read(10), nn.Flatten()]
    for k in range(depth):
        layers += [nn.Linear(width if k else 10 * TOKENS, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def attention_pooling(width: int, heads: int) -> nn.Module:
    """One convolution, attention pooling and a normalized perceptron."""
    pooled = width * heads
    head = (nn.LayerNorm(pooled), nn.Linear(pooled, 48), nn.GELU(), nn.Linear(48, CLASSES))
    body = Turned(nn.Conv1d(width, width, 3, padding=1), nn.GELU())
    return nn.Sequential(Read(width), body, Pooled(width, heads), *head)


SEQUENCE_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "LSTM, 3 layers": lambda: recurrent(nn.LSTM, 28, 3, both=False),
    "GRU, bidirectional": lambda: recurrent(nn.GRU, 24, 1, both=True),
    "transformer, 10 blocks, Post-LN": lambda: post_norm(10, 16),
    "transformer, 6 blocks, no normalization": lambda: no_norm(6, 20),
    "dilated convolutions, 6 blocks": lambda: dilated((1, 2, 4) * 2, 16),
    "MLP, 9 tanh layers": lambda: perceptron(9, 64, nn.Tanh),
    "attention pooling, LayerNorm": lambda: attention_pooling(24, 2),
}
