"""Faults on several ranks: exceptions, interrupts and memory on one of them, killed ranks, FSDP."""

from __future__ import annotations

import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tests.distributed.failing import fail, scales_in
from tests.distributed.interrupted_ranks import interrupted
from tests.sharded.sharded_models import survives
from tests.utils.ranks import run
from tests.utils.shared import batches, plain
from tests.utils.snapshots import snapshot

import neuroinit as ni
from benchmarks.faults.single import GOOD, Fault

MOVING: dict[str, Any] = {"steps": 6, "tolerance": 0.0, "rule": ni.HeldNorm()}  # takes all steps
SECONDS = 20.0  # from an error on one rank to the same error on all; the machine may be busy


def _on_ranks(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return run(world, function, folder, *arguments, seconds=600)


def _joined(outcomes: list[Any], judge: Callable[[tuple[Any, ...]], str]) -> Counter[str]:
    """The judgment of every attempt, from what all ranks say about it."""
    for outcome in outcomes:
        if outcome is None or "value" not in outcome:
            return Counter({f"the ranks ended: {outcome}": 1})
    return Counter(map(judge, zip(*(outcome["value"] for outcome in outcomes), strict=True)))


def exceptions(world: int, count: int, seed: int) -> Counter[str]:
    """An exception in the loss or the data of one rank: the same error on all, models as before."""

    def judge(attempt: tuple[Any, ...]) -> str:
        texts = {text for text, _, _ in attempt}
        if not all(unchanged for *_, unchanged in attempt):
            return "a model has changed"
        if any(seconds > SECONDS for _, seconds, _ in attempt):
            return "it took too long"
        return GOOD if len(texts) == 1 and "injected" in texts.pop() else f"errors: {texts}"

    return _joined(_on_ranks(world, _exceptions, count, seed), judge)


def _exceptions(rank: int, count: int, seed: int) -> list[list[Any]]:
    generator, world = random.Random(seed), dist.get_world_size()
    return [
        _one_exception(generator.randrange(world) == rank, generator.randint(1, 20), where)
        for where in [generator.choice(("loss", "data", "on_step")) for _ in range(count)]
    ]


def _one_exception(mine: bool, at: int, where: str) -> list[Any]:
    torch.manual_seed(0)
    model, calls, at = plain().double(), Counter[str](), at if where == "loss" else 1 + at % 4
    before, begun, ended = snapshot(model), time.monotonic(), "no error"

    def fuse(place: str, *ignored: Any) -> None:
        calls[place] += 1
        if mine and place == where and calls[place] == at:
            raise Fault("injected")

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        fuse("loss")
        return F.cross_entropy(output, target)

    feed = (fuse("data") or batch for batch in batches() * 2)
    try:
        ni.nio_(model, feed, loss, on_step=partial(fuse, "on_step"), **MOVING)
    except Exception as error:
        ended = str(error).replace("Fault: ", "")
    return [ended, time.monotonic() - begun, snapshot(model) == before]


def interrupts(
    world: int, everyone: bool, count: int, seed: int, is_sharded: bool = False
) -> Counter[str]:
    """Ctrl-C at random times on one rank, or on all: every rank is interrupted, or all finish."""

    def judge(attempt: tuple[Any, ...]) -> str:
        ends = {ended for ended, _, _ in attempt}
        if not all(unchanged for *_, unchanged in attempt):
            return "a model has changed"
        late = ends <= {"finished", "late"}
        return GOOD if late or ends == {"KeyboardInterrupt"} else f"ends: {sorted(ends)}"

    return _joined(_on_ranks(world, interrupted, seed, count, everyone, is_sharded), judge)


def kills(count: int, seed: int) -> Counter[str]:
    """Rank 1 is killed in a random pass: rank 0 raises LostRankError, its model as before."""
    generator, found = random.Random(seed), Counter[str]()
    for _ in range(count):
        first, second = _on_ranks(2, fail, "killed", generator.randint(1, 20))
        lost = second is None and first["error"] == "LostRankError"
        found[GOOD if lost else f"ends: {first}, {second}"] += 1
    return found


def sharded(count: int, seed: int) -> Counter[str]:
    """An exception in a pass of an FSDP2 model, on one rank or on all: the model works on."""

    def judge(attempt: tuple[Any, ...]) -> str:
        texts = {error for error, *_ in attempt}
        works = all(promise for _, *promises in attempt for promise in promises)
        told = len(texts) == 1 and texts <= {"the layer failed", "the gradient failed"}
        return GOOD if works and told else f"works: {works}, errors: {texts}"

    return _joined(_on_ranks(2, _sharded, count, seed), judge)


def _sharded(rank: int, count: int, seed: int) -> list[Any]:
    generator = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            survives(
                generator.randint(3, 120),
                backward=generator.random() < 0.5,
                only=generator.choice((None, 0, 1)),
            )
            for _ in range(count)
        ]


def memory(count: int, seed: int) -> Counter[str]:
    """Memory runs out on one rank: all go on in smaller pieces, with the same scales."""
    expected = scales_in(10**9, "auto")

    def judge(attempt: tuple[Any, ...]) -> str:
        if any(not isinstance(scales, dict) for scales in attempt):
            return f"errors: {set(map(str, attempt))}"
        near = all(abs(own[n] / s - 1) < 1e-9 for own in attempt for n, s in expected.items())
        return GOOD if near else "other scales"

    return _joined(_on_ranks(2, _memory, count, seed), judge)


def _memory(rank: int, count: int, seed: int) -> list[Any]:
    generator, found = random.Random(seed), list[Any]()
    for _ in range(count):
        short, room = generator.randrange(2), generator.randint(2, 5)
        engine = generator.choice(("auto", "keep", "stream"))
        try:
            found.append(scales_in(room if rank == short else 10**9, engine))
        except (RuntimeError, MemoryError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found
