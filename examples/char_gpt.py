"""A character-level GPT, trained without warmup, from its usual start and after NIO.

    python examples/char_gpt.py

The text is the language reference that comes with Python. The blocks normalize *after* adding the
branch, the arrangement of the first Transformers, which is known to need warmup when deep.
"""

import argparse
import copy
from collections.abc import Iterator
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuroinit as ni

TEXT = "\n".join(topics[name] for name in sorted(topics))
CHARACTERS = sorted(set(TEXT))
CONTEXT = 32


class GPT(nn.Module):
    """A decoder of post-norm blocks over characters."""

    def __init__(self, depth: int, width: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(len(CHARACTERS), width)
        self.position = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(width, len(CHARACTERS))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next character at every position."""
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(x)


def loss_fn(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy over all positions."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batches(count: int, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random windows of the text, and the same windows one character later."""
    index = {c: i for i, c in enumerate(CHARACTERS)}
    codes = torch.tensor([index[c] for c in TEXT])
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(len(codes) - CONTEXT - 1, (size,), generator=generator)
        windows = codes[starts[:, None] + torch.arange(CONTEXT + 1)]
        yield windows[:, :-1], windows[:, 1:]


def train(model: nn.Module, steps: int, lr: float) -> list[float]:
    """Adam at a constant learning rate from the first step on."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=lr), []
    for inputs, targets in batches(steps, 32, seed=1):
        loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train from both starts, a few seeds each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--depth", type=int, default=12)
    options = parser.parse_args()
    depth, steps, seeds = (2, 4, 1) if options.quick else (options.depth, 300, options.seeds)
    for seed in range(seeds):
        torch.manual_seed(seed)
        start = GPT(depth)
        optimized = copy.deepcopy(start)
        data = list(batches(min(steps, 41), 32, seed=2))
        ni.nio_(optimized, data, loss_fn, steps=min(steps, 40) - 1)
        for name, model in (("as it was", start), ("after NIO", optimized)):
            losses = train(model, steps, options.lr)
            last = sum(losses[-20:]) / len(losses[-20:])
            print(f"seed {seed}, {name}: mean loss of the last 20 steps {last:.3f}", flush=True)


if __name__ == "__main__":
    main()
