"""Eight networks that tell which figure a pen has drawn, from points along its way.

Of the kinds that people use for point sets, time series and tables. Two of them normalize.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from benchmarks.trainability.networks.letters import Last, States, Turned
from benchmarks.trainability.networks.other import Mean
from benchmarks.trainability.networks.sequences import Largest
from neuroinit.experiments.models.small_networks import Activation, Residual

POINTS, FIGURES = 16, 6
NUMBERS = 2 * POINTS


class Places(nn.Module):
    """Fixed sines and cosines of the place of a point, added to its features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(100.0) / width))
        angles = torch.arange(POINTS)[:, None] * rates
        self.register_buffer("waves", torch.stack([angles.sin(), angles.cos()], 2).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """As in the first transformers."""
        return torch.add(x, self.get_buffer("waves"))


class Causal(nn.Module):
    """Two dilated convolutions with WeightNorm that see no later points; a residual block."""

    def __init__(self, before: int, after: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.one = weight_norm(nn.Conv1d(before, after, 3, dilation=dilation))
        self.two = weight_norm(nn.Conv1d(after, after, 3, dilation=dilation))
        self.skip = nn.Conv1d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """As in temporal convolutional networks."""
        found = F.relu(self.one(F.pad(x, (self.past, 0))))
        found = F.relu(self.two(F.pad(found, (self.past, 0))))
        return F.relu(torch.add(found, self.skip(x)))


class Crossed(nn.Module):
    """Layers that multiply their input, linearly changed, by the input of the first one."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """As in deep and cross networks, version 2."""
        first = x
        for layer in self.layers:
            x = torch.add(x, first * layer(x))
        return x


def perceptron(widths: list[int], activation: Activation) -> list[nn.Module]:
    """Linear layers of these widths, the first of which is that of the input."""
    return [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), activation())]


def plain(widths: list[int], activation: Activation) -> nn.Module:
    """A perceptron over all points at once."""
    body = perceptron([NUMBERS, *widths], activation)
    return nn.Sequential(nn.Flatten(), *body, nn.Linear(widths[-1], FIGURES))


def pointnet(each: list[int], after: list[int]) -> nn.Module:
    """A perceptron for each point, the largest values, and a perceptron for the set."""
    points = perceptron([2, *each], nn.ReLU)
    whole = perceptron([each[-1], *after], nn.ReLU)
    return nn.Sequential(*points, Largest(), *whole, nn.Linear(after[-1], FIGURES))


def recurrent(width: int, layers: int) -> nn.Module:
    """The last state of an LSTM."""
    states = States(nn.LSTM(2, width, layers, batch_first=True))
    return nn.Sequential(states, Last(), nn.Linear(width, FIGURES))


def temporal(dilations: tuple[int, ...], width: int) -> nn.Module:
    """Causal convolutions; the last point is classified."""
    body = [Causal(width if k else 2, width, d) for k, d in enumerate(dilations)]
    return nn.Sequential(Turned(*body), Last(), nn.Linear(width, FIGURES))


def post_norm(blocks: int, width: int) -> nn.Module:
    """torch's own transformer with GELU, LayerNorm after each residual sum, without dropout."""
    block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, "gelu", batch_first=True)
    body = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
    stem = (nn.Linear(2, width), Places(width))
    return nn.Sequential(*stem, body, Mean(), nn.Linear(width, FIGURES))


def table(blocks: int, width: int) -> nn.Module:
    """A ResNet for tables: residual perceptrons, each behind BatchNorm, with dropout."""
    body = [
        Residual(
            nn.BatchNorm1d(width),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(2 * width, width),
        )
        for _ in range(blocks)
    ]
    head = (nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, FIGURES))
    return nn.Sequential(nn.Flatten(), nn.Linear(NUMBERS, width), *body, *head)


def crossed(layers: int, widths: list[int]) -> nn.Module:
    """Products of the numbers, then a perceptron."""
    body = perceptron([NUMBERS, *widths], nn.ReLU)
    head = nn.Linear(widths[-1], FIGURES)
    return nn.Sequential(nn.Flatten(), Crossed(NUMBERS, layers), *body, head)


STROKE_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "PointNet, 3 layers and 2": lambda: pointnet([32, 48, 64], [48, 32]),
    "LSTM, 4 layers": lambda: recurrent(32, 4),
    "TCN, 5 causal blocks, WeightNorm": lambda: temporal((1, 2, 4, 8, 1), 20),
    "transformer, 5 blocks, Post-LN": lambda: post_norm(5, 20),
    "tabular ResNet, 6 blocks, BatchNorm": lambda: table(6, 48),
    "hourglass MLP, 5 GELU layers": lambda: plain([96, 48, 12, 48, 96], nn.GELU),
    "MLP, 11 tanh layers": lambda: plain([56] * 11, nn.Tanh),
    "cross network, 4 layers and 3": lambda: crossed(4, [64, 64, 48]),
}
