"""Problems that one process and several have to solve alike."""

import dataclasses
import json

import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.methods.rules import BoundedAscent, agreement, low_variance
from tests.utils.moving import ni

SAMPLES = 22


def plain():
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 3))


def normed():
    return nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))


def batches(count=4):
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(SAMPLES, 5, generator=generator, dtype=torch.float64),
            torch.randint(3, (SAMPLES,), generator=generator),
        )
        for _ in range(count)
    ]


VARIANCE = ni.NIO(rule=BoundedAscent(low_variance, gram=True), gamma=9.0, lr=0.05, steps=3)
AGREEMENT = ni.NIO(rule=BoundedAscent(agreement, update=ni.Plain()), gamma=9.0, steps=3)
CASES = {
    "nio": (plain, ni.NIO(steps=3)),
    "nio-samples": (plain, ni.NIO(steps=2, sub_batches="samples")),
    "nio-bn": (normed, ni.NIO(steps=3, sub_batches=5)),
    "nio-variance": (plain, VARIANCE),
    "nio-agreement": (plain, AGREEMENT),
    "nio-agreement-bn": (normed, dataclasses.replace(AGREEMENT, sub_batches=5)),
    "paper": (plain, ni.NIO.paper(steps=3, lr=0.01)),
    "paper-bn": (normed, ni.NIO.paper(steps=3, lr=0.01)),
    "reference": (plain, ni.NIO.reference(steps=3)),
    "reference-bn": (normed, ni.NIO.reference(steps=3)),
    "gradinit": (plain, ni.GradInit(steps=3, gamma=0.1)),
    "gradinit-below": (plain, ni.GradInit(steps=3, gamma=100.0, through_update=True)),
    "gradinit-bn": (normed, ni.GradInit(steps=3)),
    "metainit": (plain, ni.MetaInit(steps=3)),
    "metainit-bn": (normed, ni.MetaInit(steps=2)),
    "lsuv": (plain, ni.LSUV()),
    "reinit": (plain, ni.NIO(steps=2, reinit_zeros=0.1)),
}


def model_of(name):
    torch.manual_seed(0)
    model = CASES[name][0]().double()
    if name == "reinit":
        nn.init.zeros_(model[2].bias)
    return model


def solve(name, own=None, engine="auto"):
    """Everything a run found, as plain numbers; ``own`` is a rank's part of every batch."""
    model, found = model_of(name), batches()
    if own is not None:
        found = [(x[own], y[own]) for x, y in found]
    torch.manual_seed(1)
    result = ni.optimize(model, found, F.cross_entropy, CASES[name][1], engine=engine)
    after = result.after
    return {
        "scales": result.scales,
        "norms": [record.norm for record in result.history],
        "losses": [record.loss for record in result.history],
        "after": None if after is None else [after.cosine, after.loss, after.agreement],
        "drawn": json.loads(json.dumps([dataclasses.asdict(d) for d in result.drawn.values()])),
    }


def solve_all(rank, names, engines=("auto",), parts=None):
    """Every case on this rank; ``parts`` are the first and last sample of every rank's batches."""
    own = None if parts is None else slice(*parts[rank])
    return {f"{n} {e}": solve(n, own, e) for n in names for e in engines}
