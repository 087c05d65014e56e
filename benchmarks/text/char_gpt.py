"""Character GPTs on a text: Pre-LN, Post-LN and without normalization."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.agreement.measures import Batch

CONTEXT = 64


class Block(nn.Module):
    """Causal attention and a perceptron, with LayerNorm before, after, or not at all."""

    def __init__(self, width: int, norm: str, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.heads, self.skip = norm, heads, 1.0  # the factor of a Post-LN skip path
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        made = [nn.Identity() if norm == "none" else nn.LayerNorm(width) for _ in range(2)]
        self.first, self.second = made

    def attend(self, x: Tensor) -> Tensor:
        """Every token looks at itself and those before."""
        n, t, w = x.shape
        q, k, v = (
            part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        scores = q @ k.mT / math.sqrt(w / self.heads)
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, t, w))

    def feed(self, x: Tensor) -> Tensor:
        """Two layers."""
        return self.down(nn.functional.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        """Two residual sums."""
        if self.norm == "post":
            x = self.first(self.skip * x + self.attend(x))
            return self.second(self.skip * x + self.feed(x))
        x = x + self.attend(self.first(x))
        return x + self.feed(self.second(x))


class GPT(nn.Module):
    """Tokens and positions, blocks, and a classifier of the next character."""

    def __init__(self, letters: int, blocks: int, norm: str, width: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(letters, width)
        self.place = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, norm) for _ in range(blocks)))
        self.last = nn.LayerNorm(width) if norm == "pre" else nn.Identity()
        self.head = nn.Linear(width, letters)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next character at every position."""
        h = self.token(x) + self.place(torch.arange(x.shape[1]))
        return self.head(self.last(self.blocks(h)))


def gpt2_rule(model: GPT) -> None:
    """Normal 0.02, zero biases, and the last layer of every branch divided by sqrt(2 L)."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2:
                p.normal_(0, 0.02)
                if name.endswith(("out.weight", "down.weight")):
                    p.div_(math.sqrt(2 * len(model.blocks)))
            elif name.endswith("bias"):
                p.zero_()


def deep_norm(model: GPT) -> None:
    """DeepNet's scaling of Post-LN: skip paths times (2L)^(1/4), branches times (8L)^(-1/4)."""
    depth = len(model.blocks)
    for block in model.blocks:
        block.skip = (2 * depth) ** 0.25
        query_and_key, value = block.qkv.weight.split(
            [2 * block.out.in_features, block.out.in_features]
        )
        nn.init.xavier_normal_(query_and_key)
        for weight in (value, block.out.weight, block.up.weight, block.down.weight):
            nn.init.xavier_normal_(weight, gain=(8 * depth) ** -0.25)


@cache
def text(path: str) -> tuple[Tensor, int]:
    """The text as numbers, and how many letters there are."""
    read = Path(path).read_text()
    letters = sorted(set(read))
    where = {c: i for i, c in enumerate(letters)}
    return torch.tensor([where[c] for c in read]), len(letters)


def batches(
    path: str, count: int, seed: int, part: str = "train", size: int = 32, length: int = CONTEXT
) -> list[Batch]:
    """Random windows; the last tenth of the text is for tests, the tenth before for choices."""
    data, _ = text(path)
    ends = {"train": (0.0, 0.8), "held": (0.8, 0.9), "test": (0.9, 1.0)}[part]
    low, high = (int(e * len(data)) for e in ends)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(low, high - length - 1, (count, size), generator=generator)
    windows = data[starts[..., None] + torch.arange(length + 1)]
    return [(w[:, :-1].contiguous(), w[:, 1:].contiguous()) for w in windows]
