"""Train two deep networks on digits, initialized by Kaiming and by NIO."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.data.split import Split
from neuroinit.experiments.models.small_networks import kaiming, plain_cnn, residual_mlp
from neuroinit.experiments.training.simple_loop import Training, train
from neuroinit.run.in_place import nio_
from neuroinit.run.results.result import Result

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual MLP, 24 blocks": lambda: residual_mlp(24),
    "plain CNN, 12 ELU layers": lambda: plain_cnn(12, activation=nn.ELU),
}
LEARNING_RATE = 0.1
BATCHES, BATCH_SIZE = 40, 64


@dataclass(frozen=True)
class Pair:
    """One network and seed, trained from Kaiming's weights and from the same weights after NIO.

    Args:
        network: Key of ``NETWORKS``.
        seed: Seed of the weights and of the order of the data.
        kaiming: Training from Kaiming's weights.
        nio: Training after NIO.
        result: The result of NIO.
    """

    network: str
    seed: int
    kaiming: Training
    nio: Training
    result: Result


def run(seeds: int, epochs: int) -> Iterator[Pair]:
    """Train every network from both initializations, with one seed after the other."""
    torch.set_num_threads(1)  # the networks are too small for more threads
    data = digits()
    for network in NETWORKS:
        for seed in range(seeds):
            yield compare(network, seed, data, epochs)


def compare(network: str, seed: int, data: Split, epochs: int) -> Pair:
    """Train one network with one seed from both initializations."""
    torch.manual_seed(seed)
    initial = kaiming(NETWORKS[network]())
    optimized = copy.deepcopy(initial)
    sgd = torch.optim.SGD(optimized.parameters(), LEARNING_RATE)
    batches = data.batches(BATCHES, BATCH_SIZE, seed)
    result = nio_(optimized, batches, optimizer=sgd, progress=False)
    before, after = (
        train(model, data, lr=LEARNING_RATE, epochs=epochs, seed=seed)
        for model in (initial, optimized)
    )
    return Pair(network, seed, before, after, result)
