"""``auto_`` and ``compare`` on several ranks, each with batches of its own."""

import os
import signal

import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from tests.utils.snapshots import assert_unchanged, snapshot

CANDIDATES = {"Kaiming": ni.Kaiming(), "LSUV": ni.LSUV(), "NIO": ni.NIO(steps=3, sub_batches=4)}
SIZES = (20, 12)  # samples of a batch on rank 0 and on rank 1


def network(gain):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)]
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    return model


def learnable(count, rank=None):
    """Batches whose labels depend on the inputs: all samples, or those of one rank."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    found = []
    for _ in range(count):
        inputs = torch.randn(sum(SIZES), 8, generator=generator, dtype=torch.float64)
        own = slice(None)
        if rank is not None:
            own = slice(SIZES[0] * rank, SIZES[0] + SIZES[1] * rank)
        found.append((inputs[own], (inputs @ teacher).argmax(1)[own]))
    return found


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def choose(gain, count, rank=None):
    """The outcome of ``auto_`` as plain values."""
    model = network(gain)
    torch.manual_seed(5)
    result = ni.auto_(
        model, learnable(count, rank), optimizer=sgd, budget=60, candidates=CANDIDATES
    )
    return {
        "winner": result.winner,
        "scores": {c.name: [min(s, 1e300) for s in c.scores] for c in result.candidates},
        "parameters": {n: p.tolist() for n, p in model.named_parameters()},
    }


def choose_all(rank, gains, count):
    torch.manual_seed(rank)  # draws have to agree all the same
    return {str(gain): choose(gain, count, rank) for gain in gains}


def verify(gain, rank=None):
    """The outcome of ``nio_`` that an optimizer verifies, as plain values."""
    model = network(gain)
    result = ni.nio_(model, learnable(16, rank), optimizer=sgd, sub_batches=4)
    return {"verified": result.verified.split(":")[0], "scales": result.scales}


def verify_all(rank, gains):
    return {str(gain): verify(gain, rank) for gain in gains}


def compared(rank=None):
    """The outcome of ``compare`` without its times."""

    def train(model):
        inputs, targets = learnable(9, rank)[8]
        weight = len(targets) * (1 if rank is None else len(SIZES)) / sum(SIZES)
        return F.cross_entropy(model(inputs), targets).item() * weight

    methods = {"as it is": None, "Kaiming": ni.Kaiming(), "NIO": ni.NIO(steps=2, sub_batches=4)}
    table = ni.compare(
        lambda: network(1.0), learnable(4, rank), methods, seeds=[1], train=train, show=False
    )
    return [{k: v for k, v in dict(r).items() if k not in ("seconds", "cost")} for r in table]


def compare_on(rank):
    return compared(rank)


def fail_in_auto(rank, how):
    """Rank 1 fails in a rollout or in a candidate's method."""
    model = network(1.0)
    before, calls = snapshot(model), []

    def loss(output, target):
        calls.append(1)
        at = len(calls) >= 90 and output.requires_grad if how == "rollout" else len(calls) == 12
        if rank == 1 and at:  # in a rollout: while it trains, not while it is evaluated
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise (
                ValueError("no such label") if how == "candidate" else LookupError("no such label")
            )
        return F.cross_entropy(output, target)

    named = CANDIDATES if how == "rollout" else None  # by default errors in methods are tolerated
    batches = learnable(12, rank)
    try:
        found = ni.auto_(model, batches, loss, optimizer=sgd, budget=120, candidates=named)
    except Exception:
        assert_unchanged(before, model)
        raise
    weights = {n: p.tolist() for n, p in model.named_parameters()}
    return [found.winner, weights, {c.name: c.failed for c in found.candidates if c.failed}]
