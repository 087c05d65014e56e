"""The rows of the trainability suite: every method of the library, and NIO with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

import neuroinit as ni
from neuroinit.methods.rules import BoundedAscent

Apply = Callable[[nn.Module, Any, Any], "dict[str, Any] | None"]


@dataclass(frozen=True)
class Contender:
    """A way to start.

    Args:
        apply: ``apply(model, batches, optimizer)`` changes the model in place, and may tell something.
        aware: What it does depends on the optimizer.
        schedule: Makes a learning rate schedule for the training.
    """

    apply: Apply = lambda model, batches, optimizer: None
    aware: bool = False
    schedule: Callable[[Any], Any] | None = None


def by(method: ni.Initialization) -> Contender:
    """A method as it is; one that draws afresh needs no data."""

    def apply(model: nn.Module, batches: Any, optimizer: Any) -> dict[str, Any]:
        data = batches if method.steps else ()
        loss = {} if method.steps else {"loss_fn": None}
        found = ni.optimize(model, data, method=method, progress=False, **loss)
        found.apply_(model)
        return {"norm": found.after.norm if found.after else None}

    return Contender(apply)


def auto(model: nn.Module, batches: Any, optimizer: Any) -> dict[str, Any]:
    """The automatic choice, with the optimizer of the training."""
    found = ni.auto_(model, batches, optimizer=optimizer, progress=False)
    return {"winner": found.winner, "verdict": found.verdict, "cost": found.cost}


PAPERS_FORM = {"rule": BoundedAscent(), "sub_batches": 2, "overlap": 0.6, "steps": 100, "gamma": 1.0}

METHODS: dict[str, Contender] = {
    "as it is": Contender(),
    "warmup of one epoch": Contender(schedule=ni.Warmup(warmup_steps=22).schedule),
    "Kaiming": by(ni.Kaiming()),
    "Xavier": by(ni.Xavier()),
    "orthogonal": by(ni.Orthogonal()),
    "truncated normal": by(ni.TruncNormal()),
    "LSUV": by(ni.LSUV()),
    "GradInit": by(ni.GradInit(steps=60, lr=0.05)),
    "MetaInit": by(ni.MetaInit(steps=60)),
    "NIO, paper's form": by(ni.NIO(**PAPERS_FORM, lr=0.02)),
    "NIO.paper()": by(ni.NIO.paper(steps=100)),
    "NIO()": by(ni.NIO()),
    "auto_": Contender(auto, aware=True),
}
FRESH = ("Kaiming", "Xavier", "orthogonal", "truncated normal", "LSUV")  # whatever they are given
