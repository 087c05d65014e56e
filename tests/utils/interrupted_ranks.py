"""Ctrl-C at random times on one rank, or on all."""

import os
import random
import signal
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import neuroinit as ni
from tests.utils.shared import batches, plain
from tests.utils.snapshots import snapshot

METHOD = ni.NIO(steps=6)


def interrupted(rank, seed, attempts, everyone):
    """How every attempt ended on this rank: ``[ended, seconds, unchanged]``."""
    generator = random.Random(seed)
    usual = min(seconds_of_a_run() for _ in range(3))
    found = []
    for attempt in range(attempts):
        delay, jitter = generator.uniform(0, usual), generator.uniform(-0.01, 0.01)
        chosen = everyone or rank == attempt % dist.get_world_size()
        later = delay + jitter * rank if everyone else delay
        found.append(one(max(0.0, later) if chosen else None))
    return found


def one(delay):
    own = model()
    before, ended = snapshot(own), "lost"
    sent, begun = threading.Event(), time.monotonic()

    def send():
        sent.set()
        os.kill(os.getpid(), signal.SIGINT)

    dist.barrier()
    timer = threading.Timer(60.0 if delay is None else delay, send)
    try:
        timer.start()
        optimized(own)
        ended = "finished"
        timer.cancel()
        timer.join()
    except KeyboardInterrupt:
        timer.cancel()
        ended = "late" if ended == "finished" else "KeyboardInterrupt"
    except Exception as error:
        timer.cancel()
        ended = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begun
    timer.join()
    try:
        time.sleep(0.02)  # a signal on its way
    except KeyboardInterrupt:
        ended = "late" if ended == "finished" else ended
    return [ended, seconds, snapshot(own) == before]


def model():
    torch.manual_seed(0)
    return plain().double()


def optimized(own):
    ni.optimize(own, batches(), F.cross_entropy, METHOD)


def seconds_of_a_run():
    """The same on all ranks."""
    begun = time.monotonic()
    optimized(model())
    found = torch.tensor([time.monotonic() - begun])
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.item()
