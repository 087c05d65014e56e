"""
A transformer without warmup
============================

Transformers are usually trained with LayerNorm and a warmup of the learning rate. This one has neither. We
compare Kaiming initialization alone, with a warmup, and with ``nio_``.
"""

# %%
# The model
# ---------
# The model has three blocks of attention and a perceptron, without LayerNorm. An image of 8x8 pixels is a sequence of eight tokens.

import copy

import torch
from torch import Tensor, nn

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.training.simple_loop import train


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.perceptron(x)


class Transformer(nn.Module):
    def __init__(self, blocks: int = 3, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, width)
        self.position = nn.Parameter(0.02 * torch.randn(8, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embedding(images.squeeze(1)) + self.position
        return self.head(self.blocks(tokens).mean(dim=1))


torch.manual_seed(0)
data = digits()
start = Transformer()
drawn = ni.kaiming_(start)

# %%
# Three ways to begin
# -------------------
# All three start from the same Kaiming weights. The first training uses them as they are. The second adds one epoch of
# linear warmup. The third runs ``nio_`` first, without warmup. ``Warmup`` does not change the weights; it makes a schedule.

batches = data.batches(41, 64, seed=0)
optimized = copy.deepcopy(start)
print(ni.nio_(optimized, batches, progress=False))

warmup = ni.Warmup(warmup_steps=22)
settings = {"lr": 0.05, "momentum": 0.9, "epochs": 8}
runs = {
    "Kaiming": train(copy.deepcopy(start), data, **settings),
    "Kaiming, warmup": train(copy.deepcopy(start), data, schedule=warmup.schedule, **settings),
    "Kaiming, then nio_": train(optimized, data, **settings),
}
for name, run in runs.items():
    print(f"{name}:", "diverged" if run.diverged else f"test accuracy {run.accuracy:.1%}")

# %%
# Without ``nio_`` the loss starts in the hundreds and is not finite after a few steps, also with warmup. A cross marks
# this. Losses above 1000 are drawn at 1000.

figure, axes = ni.plots.figure(1, width=5)
colors = (ni.plots.BEFORE, "#9a6a00", ni.plots.AFTER)
for (name, run), color in zip(runs.items(), colors, strict=True):
    ni.plots.draw_losses(axes[0, 0], [run.losses], color, name, ceiling=1e3)
figure

# %%
# This is one seed of one small model. Results for many networks and seeds are in :doc:`/evidence/index`. Do not change a
# transformer *with* LayerNorm that already trains.
