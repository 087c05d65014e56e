"""The rows of the trainability suite: every method of the library, and NIO with one change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

import neuroinit as ni
from benchmarks.trainability.ideas import ClampedBiases, EitherWay, PerTensorCosine, PerTensorNorm
from neuroinit.methods.rules import BoundedAscent, HeldNorm

Apply = Callable[[nn.Module, Any, Any], "dict[str, Any] | None"]
RECORDED = ClampedBiases(ascent=0.1)  # the default rule when the records of `NIO()` were made


@dataclass(frozen=True)
class Contender:
    """A way to start.

    Args:
        apply: ``apply(model, batches, optimizer)`` changes the model in place, and may tell what.
        aware: What it does depends on the optimizer.
        fresh: What it does not depend on is the start that it is given.
        schedule: Makes a learning rate schedule for the training.
        seeds: How many of the suite's seeds are run; ablations have the first only.
    """

    apply: Apply = lambda model, batches, optimizer: None
    aware: bool = False
    fresh: bool = False
    schedule: Callable[[Any], Any] | None = None
    seeds: int = 3


def drawn(method: ni.Initialization) -> Contender:
    """A start that is drawn afresh."""

    def apply(model: nn.Module, batches: Any, optimizer: Any) -> None:
        data = batches if method.steps else ()
        ni.optimize(model, data, None, method, progress=False).apply_(model)

    return Contender(apply, fresh=True)


def learned(method: ni.Initialization, seeds: int = 3) -> Contender:
    """A method that learns scales."""

    def apply(model: nn.Module, batches: Any, optimizer: Any) -> None:
        ni.optimize(model, batches, method=method, progress=False).apply_(model)

    return Contender(apply, seeds=seeds)


def without_data(model: nn.Module, batches: Any, optimizer: Any) -> None:
    """NIO() on random inputs with random labels."""
    ni.nio_(model, example=batches[0][0], progress=False, rule=RECORDED)


def for_the_optimizer(model: nn.Module, batches: Any, optimizer: Any) -> None:
    """NIO() with a bound from the optimizer."""
    ni.nio_(model, batches, optimizer=optimizer, progress=False, rule=RECORDED, verify=False)


def auto(model: nn.Module, batches: Any, optimizer: Any) -> dict[str, Any]:
    """The automatic choice, with the optimizer of the training."""
    found = ni.auto_(model, batches, optimizer=optimizer, progress=False)
    return {"winner": found.winner, "verdict": found.verdict, "cost": found.cost}


def factor(model: nn.Module, batches: Any, optimizer: Any) -> dict[str, Any]:
    """The default."""
    result = ni.nio_(model, batches, progress=False)
    return {"factor": max(result.scales.values(), key=lambda w: abs(math.log(w)))}


def factor_for_optimizer(model: nn.Module, batches: Any, optimizer: Any) -> dict[str, Any]:
    """The default with the optimizer, which verifies it."""
    result = ni.nio_(model, batches, progress=False, optimizer=optimizer)
    return {"verified": result.verified.partition(":")[0]}


def changed(**fields: Any) -> Contender:
    """NIO() with one thing changed: an ablation."""
    return learned(ni.NIO(**fields), seeds=1)


METHODS: dict[str, Contender] = {
    "as it is": Contender(),
    "warmup of one epoch": Contender(schedule=ni.Warmup(warmup_steps=22).schedule),
    "Kaiming": drawn(ni.Kaiming()),
    "Xavier": drawn(ni.Xavier()),
    "orthogonal": drawn(ni.Orthogonal()),
    "truncated normal": drawn(ni.TruncNormal()),
    "LSUV": drawn(ni.LSUV()),
    "GradInit": learned(ni.GradInit(steps=60, lr=0.05)),
    "MetaInit": learned(ni.MetaInit(steps=30)),
    "NIO, paper's form": learned(
        ni.NIO(rule=BoundedAscent(), sub_batches=2, overlap=0.6, steps=100, gamma=1.0, lr=0.02)
    ),
    "NIO.paper(steps=100)": learned(ni.NIO.paper(steps=100), seeds=1),
    "NIO.reference()": learned(ni.NIO.reference(), seeds=1),
    "NIO()": learned(ni.NIO(rule=RECORDED)),
    "NIO() without data": Contender(without_data),
    "auto_": Contender(auto, aware=True),
    "common factor": Contender(factor),
    "common factor, optimizer": Contender(factor_for_optimizer, aware=True),
    "auto_ of 2026-11-17": Contender(auto, aware=True),
    "nio_ for the optimizer": Contender(factor_for_optimizer, aware=True),
    "nio_ of 2026-11-18": Contender(factor_for_optimizer, aware=True),
    "nio_ with branches": Contender(factor_for_optimizer, aware=True),
    "auto_ of 2026-11-18": Contender(auto, aware=True),
    "nio_ by what is learned": Contender(factor_for_optimizer, aware=True),
    "nio_ with layers and branches": Contender(factor_for_optimizer, aware=True),
    "auto_ by what is learned": Contender(auto, aware=True),
    "nio_ with bounded learning": Contender(factor_for_optimizer, aware=True),
    "auto_ without a higher rate": Contender(auto, aware=True),
    "nio_ by a clear lead": Contender(factor_for_optimizer, aware=True),
    "NIO(), idle layers stay": changed(rule=ClampedBiases(ascent=0.1, grow=False)),
    "NIO(), biases as they are": changed(rule=HeldNorm(ascent=0.1)),
    "NIO(), grows to lower a norm": changed(rule=EitherWay(ascent=0.1)),
    "NIO(), explosions held only": changed(rule=ClampedBiases(ascent=0.1, shrink_above=1e30)),
    "NIO(), steps stay long": changed(rule=ClampedBiases(ascent=0.1, miss=1e30)),
    "NIO(), no ascent": changed(rule=ClampedBiases()),
    "NIO(), no ascent, biases as they are": changed(rule=HeldNorm()),
    "NIO(), grows at any loss": changed(rule=ClampedBiases(ascent=0.1, loss_within=1e30)),
    "NIO(), cosine of every tensor": learned(PerTensorCosine(rule=RECORDED), seeds=1),
    "NIO(), norms of tensors alike": learned(PerTensorNorm(rule=RECORDED), seeds=1),
    "NIO(), gamma for the optimizer": Contender(for_the_optimizer, aware=True, seeds=1),
}
