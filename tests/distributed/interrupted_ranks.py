"""Ctrl-C at random times on one rank, or on all."""

import os
import random
import signal
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from neuroinit.distributed.fsdp import fsdp_modules
from neuroinit.distributed.passed_errors import is_common
from neuroinit.run.loop.checkpoint import Checkpoint
from neuroinit.run.results.result import Result
from tests.sharded.fsdp import whole
from tests.sharded.sharded_models import one_step, shared
from tests.utils.interrupts import process_state
from tests.utils.moving import ni
from tests.utils.shared import batches, plain
from tests.utils.snapshots import snapshot

METHOD = ni.NIO(steps=6)


def interrupted(rank, seed, attempts, everyone, sharded=False):
    """How every attempt ended on this rank: ``[ended, seconds, unchanged]``."""
    generator = random.Random(seed)
    usual = min(seconds_of_a_run(sharded) for _ in range(3))
    found = []
    for attempt in range(attempts):
        delay, jitter = generator.uniform(0, usual), generator.uniform(-0.01, 0.01)
        chosen = everyone or rank == attempt % dist.get_world_size()
        later = delay + jitter * rank if everyone else delay
        found.append(one(max(0.0, later) if chosen else None, sharded))
    return found


def one(delay, sharded=False):
    own, state = model(sharded), sharded_state if sharded else snapshot
    before, ended = state(own), "lost"
    done, begun = threading.Event(), time.monotonic()
    handler = signal.getsignal(signal.SIGINT)

    def send():
        # the call has not begun yet
        while signal.getsignal(signal.SIGINT) is handler and not done.is_set():
            time.sleep(0.001)
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    dist.barrier()
    timer = threading.Timer(60.0 if delay is None else delay, send)
    try:
        timer.start()
        optimized(own)
        ended = "finished"
        done.set()
        timer.cancel()
        timer.join()
    except KeyboardInterrupt as error:
        timer.cancel()
        ended = "KeyboardInterrupt" if is_common(error) else "late"  # after the last exchange
    except Exception as error:
        timer.cancel()
        ended = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begun
    done.set()
    timer.join()
    try:
        time.sleep(0.02)  # a signal on its way
    except KeyboardInterrupt:
        ended = "late" if ended == "finished" else ended
    return [ended, seconds, state(own) == before]


def interrupted_at_the_end(rank, late):
    """Ctrl-C on rank 0 before or after the last exchange of ``nio_``: ``[ended, changed]``."""
    owner, name = (Result, "apply_") if late else (Checkpoint, "remove")
    original = getattr(owner, name)

    def with_signal(*arguments):
        if rank == 0:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    own, ended = model(), "finished"
    before = snapshot(own)
    setattr(owner, name, with_signal)
    try:
        ni.nio_(own, batches(), gamma=1.0, steps=2)
    except KeyboardInterrupt:
        ended = "KeyboardInterrupt"
    finally:
        setattr(owner, name, original)
    return [ended, snapshot(own) != before]


def model(sharded=False):
    torch.manual_seed(0)
    own = plain().double()
    if sharded:
        fully_shard(own[2], mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return shared(own) if sharded else own


def sharded_state(own):
    """Values, and the next step of training; both need all ranks."""
    whole_values = [whole(p).tolist() for p in own.parameters()]
    shards = all(hasattr(p, "full_tensor") and p.grad is None for p in own.parameters())
    modes = [module.training for module in own.modules()]
    return [
        whole_values,
        shards,
        modes,
        one_step(own),
        process_state(),
        torch.get_rng_state().tolist(),
    ]


def optimized(own):
    engine = "differences" if fsdp_modules(own) else "auto"
    method = ni.NIO(steps=2) if fsdp_modules(own) else METHOD
    ni.optimize(own, batches(), F.cross_entropy, method, engine=engine)


def seconds_of_a_run(sharded=False):
    """The same on all ranks."""
    begun = time.monotonic()
    optimized(model(sharded))
    found = torch.tensor([time.monotonic() - begun])
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.item()
