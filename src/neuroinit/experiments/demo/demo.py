"""The demo: two deep networks without normalization, from Kaiming and from NIO."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neuroinit import plots
from neuroinit.common.files import replacing
from neuroinit.experiments.demo.plain import Split, Training, digits, train
from neuroinit.experiments.models.small import kaiming, plain_cnn, residual_mlp
from neuroinit.run.in_place import nio_
from neuroinit.run.result import Result

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual MLP, 24 blocks": lambda: residual_mlp(24),
    "plain CNN, 12 ELU layers": lambda: plain_cnn(12, activation=nn.ELU),
}
LEARNING_RATE = 0.1
BATCHES, BATCH_SIZE = 40, 64

TEXT = (
    "From Kaiming's start the gradients explode through the depth and the loss is not a number "
    "after a few steps of SGD (a cross in the figure), while the same weights, each tensor "
    "rescaled once by NIO, learn the digits. It does not show that NIO helps a network that "
    "already trains, that a higher GradCosine is the reason (it is highest before, when all "
    "gradients explode in one direction), or anything about accuracy on larger tasks."
)


@dataclass(frozen=True)
class Pair:
    """One network and seed, trained from Kaiming and from NIO on top of it."""

    network: str
    seed: int
    kaiming: Training
    nio: Training
    result: Result


def run(seeds: int = 3, epochs: int = 6) -> Iterator[Pair]:
    """Train every network from both starts, one seed after the other."""
    torch.set_num_threads(1)  # the networks are small: a second thread only waits
    data = digits()
    for network in NETWORKS:
        for seed in range(seeds):
            yield compare(network, seed, data, epochs)


def compare(network: str, seed: int, data: Split, epochs: int) -> Pair:
    """One network and seed: the same weights, as they are and after NIO."""
    torch.manual_seed(seed)
    start = kaiming(NETWORKS[network]())
    optimized = copy.deepcopy(start)
    result = nio_(optimized, data.batches(BATCHES, BATCH_SIZE, seed), progress=False)
    options: dict[str, Any] = {"lr": LEARNING_RATE, "epochs": epochs, "seed": seed}
    return Pair(
        network, seed, train(start, data, **options), train(optimized, data, **options), result
    )


def rows(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """One row a network and start: what a newcomer wants to know.

    A start whose gradients are finite on no seed has no norm.
    """
    found = []
    for network in NETWORKS:
        mine = [pair for pair in pairs if pair.network == network]
        for start, runs in (("Kaiming", [p.kaiming for p in mine]), ("NIO", [p.nio for p in mine])):
            ends = [p.result.before if start == "Kaiming" else p.result.after for p in mine]
            norms = [stats.norm for stats in ends if stats]
            found.append(
                {
                    "network": network,
                    "start": start,
                    "gradient norm": statistics.median(norms) if norms else None,
                    "diverged": f"{sum(r.diverged for r in runs)} of {len(runs)}",
                    "accuracy": [r.accuracy for r in runs],
                }
            )
    return found


def picture(pairs: Sequence[Pair], path: Path) -> None:
    """One row a network: loss curves of all seeds; norm and cosine of every tensor, seed 0."""
    made, axes = plots.figure(3, len(NETWORKS))
    for row, network in zip(axes, NETWORKS, strict=True):
        mine = [pair for pair in pairs if pair.network == network]
        plots.draw_losses(row[0], [p.kaiming.losses for p in mine], plots.BEFORE, "Kaiming")
        plots.draw_losses(row[0], [p.nio.losses for p in mine], plots.AFTER, "Kaiming, then NIO")
        row[0].set_title(f"{network}: training loss", fontsize=9)
        before, after = mine[0].result.before, mine[0].result.after
        if before and after:
            plots.draw_layers(row[1], before, after, "norm")
            plots.draw_layers(row[2], before, after, "cosine")
    with replacing(path) as temporary:
        made.savefig(temporary, format=path.suffix.removeprefix(".") or "png")
