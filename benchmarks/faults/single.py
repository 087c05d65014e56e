"""Faults in one process: exceptions in the user's code, interrupts, memory that runs out."""

from __future__ import annotations

import random
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.distributed.failing import scales_in
from tests.utils.interrupts import CALLS, left_behind, lines_of, model
from tests.utils.interrupts import batches as attention_batches
from tests.utils.snapshots import snapshot
from torch import Tensor, nn

import neuroinit as ni

GOOD = "as promised"
METHOD = ni.NIO(steps=2, sub_batches=2)


class Fault(Exception):
    """What is injected."""


class Fuse:
    """Raises at one of its calls, wherever these are made.

    Attributes:
        optional: Whether that was while the agreement was measured, which is then ``nan``.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at, self.calls, self.optional = at, 0, False

    def __call__(self, *ignored: Any) -> None:
        """Count, and raise when it is time."""
        self.calls += 1
        if self.calls == self.at:
            frames = traceback.extract_stack()
            self.optional = any(frame.name.startswith("with_agreement") for frame in frames)
            raise Fault(f"call {self.calls}")


def _loss(fuse: Fuse) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        fuse()
        return F.cross_entropy(output, target)

    return loss


def _in_layer(found: nn.Module, fuse: Fuse) -> None:
    found.last.register_forward_pre_hook(fuse)
    ni.optimize(found, attention_batches(), F.cross_entropy, METHOD, engine="stream")


def _in_backward(found: nn.Module, fuse: Fuse) -> None:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(fuse)

    found.last.register_forward_hook(hook)
    ni.optimize(found, attention_batches(), F.cross_entropy, METHOD)


def _in_loss(found: nn.Module, fuse: Fuse) -> None:
    ni.optimize(found, attention_batches(), _loss(fuse), METHOD)


def _in_data(found: nn.Module, fuse: Fuse) -> None:
    ni.nio_(found, (fuse() or batch for batch in attention_batches()), steps=2, sub_batches=2)


def _in_on_step(found: nn.Module, fuse: Fuse) -> None:
    ni.nio_(found, attention_batches(), steps=3, sub_batches=2, on_step=fuse)


def _in_statistics(found: nn.Module, fuse: Fuse) -> None:
    ni.gradient_stats(found, attention_batches()[0], _loss(fuse), sub_batches=4)


def _in_auto(found: nn.Module, fuse: Fuse) -> None:
    sgd = torch.optim.SGD(found.parameters(), lr=1e-9)
    named = {"Kaiming": ni.Kaiming(), "NIO": METHOD}
    ni.auto_(found, attention_batches(), _loss(fuse), optimizer=sgd, budget=8, candidates=named)


PLACES: dict[str, Callable[[nn.Module, Fuse], None]] = {
    "a layer": _in_layer,
    "the backward pass": _in_backward,
    "the loss": _in_loss,
    "the data": _in_data,
    "`on_step`": _in_on_step,
    "`gradient_stats`": _in_statistics,
    "`auto_`": _in_auto,
}


def exceptions(place: str, count: int, seed: int) -> Counter[str]:
    """An exception at random calls of the user's code: it is raised, and the model is as before."""
    call, generator, found = PLACES[place], random.Random(seed), Counter[str]()
    fuse = Fuse()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(model(), fuse)
        for _ in range(count):
            found[_one_exception(call, generator.randint(1, fuse.calls))] += 1
    return found


def _one_exception(call: Callable[[nn.Module, Fuse], None], at: int) -> str:
    own = model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, fuse = snapshot(own), Fuse(at)
        try:
            call(own, fuse)
        except Fault:
            pass
        else:
            return GOOD if fuse.optional else "not raised"
    after = snapshot(own)
    ignored = ("attributes", "keys")  # the hooks of the test itself
    changed = [key for key in before if key not in ignored and after[key] != before[key]]
    return f"changed: {', '.join(changed)}" if changed else GOOD


def interrupts(name: str, count: int, seed: int) -> Counter[str]:
    """Ctrl-C or SIGTERM at random lines of a call: it ends, and nothing is left behind."""
    generator, found = random.Random(seed), Counter[str]()
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lines = lines_of(name)
            for _ in range(count):
                number = generator.choice((signal.SIGINT, signal.SIGTERM))
                ended, left = left_behind(name, generator.randint(1, lines), number)
                bad = [*left, *([] if ended in ("interrupted", "not reached") else [ended])]
                found[f"left behind: {', '.join(bad)}" if bad else GOOD] += 1
    finally:
        signal.signal(signal.SIGTERM, previous)
    return found


INTERRUPTED = tuple(CALLS)


def memory(count: int, seed: int) -> Counter[str]:
    """Memory for a few samples only: the run goes on in smaller pieces, with the same scales."""
    generator, found = random.Random(seed), Counter[str]()
    expected = scales_in(10**9, "auto")
    for _ in range(count):
        room, engine = generator.randint(2, 5), generator.choice(("auto", "keep", "stream"))
        try:
            scales = scales_in(room, engine)
            near = all(abs(scales[n] / s - 1) < 1e-9 for n, s in expected.items())
            found[GOOD if near else "other scales"] += 1
        except (RuntimeError, MemoryError) as error:
            found[f"raised {type(error).__name__}"] += 1
    return found
