"""Runs in which something goes wrong on one rank."""

import os
import signal
import tempfile
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.utils.moving import ni
from tests.utils.shared import batches, plain
from tests.utils.snapshots import assert_unchanged, snapshot

METHOD = ni.NIO(steps=4)


class OwnError(Exception):
    """A type that other ranks need not know."""


def fail(rank, how, at=12):
    """Rank 1 fails in some way; the model has to be unchanged on every rank."""
    torch.manual_seed(0)
    model = plain().double()
    if how == "other parameters" and rank == 1:
        torch.nn.init.normal_(model[0].weight)
    before = snapshot(model)
    found, loss_fn = _data(how, rank), _loss(how, rank, at)
    method = ni.NIO(steps=5) if how == "other method" and rank == 1 else METHOD
    if how == "bad argument" and rank == 1:
        found = found[0][0]
    options = {}
    if how == "other autocast" and rank == 1:
        options = {"autocast": torch.bfloat16}
    if how == "no checkpoint" and rank == 0:
        options = {"checkpoint": Path(tempfile.mkdtemp()) / "run.json"}
    try:
        ni.optimize(model, found, loss_fn, method, **options)
    finally:
        assert_unchanged(before, model)


def _data(how, rank):
    found = batches()
    if how == "ends early":
        return iter(found[: 2 if rank == 1 else 4])
    if how == "loader raises" and rank == 1:
        return (_raise_at(2, k, batch) for k, batch in enumerate(found))
    if how == "not finite":
        found = [
            (x + torch.nan if rank == 1 and k == 2 else x, y) for k, (x, y) in enumerate(found)
        ]
    if how == "forms":
        return [(x[:, : 5 - rank], y) for x, y in found]
    return found


def _raise_at(step, k, batch):
    if k == step:
        raise OwnError("the disk is gone")
    return batch


def _loss(how, rank, at):
    calls = []

    def loss(output, target):
        calls.append(1)
        if rank == 1 and len(calls) == at:
            if how == "loss raises":
                raise KeyError("no such label")
            if how == "one loss is nan":
                return F.cross_entropy(output, target) * torch.nan
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        return F.cross_entropy(output, target)

    return loss


class Cramped(torch.nn.Module):
    """Raises as if memory had run out, for more samples than it has room for."""

    room = 10**9  # not of the instance, whose attributes come back after every session

    def forward(self, x):
        if len(x) > Cramped.room:
            raise torch.OutOfMemoryError("out of memory")
        return x


def cramped():
    """A model with a limit of samples in a pass."""
    torch.manual_seed(0)
    layers = plain()
    return torch.nn.Sequential(*layers[:2], Cramped(), *layers[2:]).double()


def scales_in(room, engine):
    """The scales of a model with room for so many samples."""
    Cramped.room = room
    method = ni.NIO(steps=2, gamma=0.1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Memory ran out")
        try:
            return ni.optimize(cramped(), batches(), method=method, engine=engine).scales
        finally:
            Cramped.room = 10**9


def cramped_on_one(rank, rooms, engines):
    """The scales if rank 1 has room for so many samples."""
    return [scales_in(room if rank == 1 else 10**9, engine) for room in rooms for engine in engines]


def all_failures(rank, ways):
    """Type, text and notes of the error of every way to fail, one after the other."""
    found = {}
    for how in ways:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                fail(rank, how)
            found[how] = None
        except Exception as error:
            notes = getattr(error.__cause__ or error, "__notes__", [])
            found[how] = [type(error).__name__, str(error), notes]
    return found
