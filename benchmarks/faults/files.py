"""Faults of files: damaged results and checkpoints, other runs' checkpoints, killed processes."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tests.run.loop.resumed import METHODS, result
from tests.utils.shared import plain

import neuroinit as ni
from benchmarks.faults.single import GOOD

METHOD = ni.NIO(steps=3, reinit_zeros=0.1, rule=ni.HeldNorm())  # takes all steps


class Stop(Exception):
    """Ends a run in the middle."""


def _stop(record: Any) -> None:
    if record.step == 1:
        raise Stop


def data(seed: int = 0) -> list[Any]:
    """A few batches."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(16, 5, generator=generator), torch.randint(3, (16,), generator=generator))
        for _ in range(4)
    ]


def _model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = plain()
    torch.nn.init.zeros_(model[2].bias)
    return model


def damaged(content: bytes, generator: random.Random) -> bytes:
    """The content with a bit flipped, a part cut off, a part removed, or a part inserted."""
    changed, place = bytearray(content), generator.randrange(len(content))
    match generator.randrange(4):
        case 0:
            changed[place] ^= 1 << generator.randrange(8)
        case 1:
            del changed[place:]
        case 2:
            del changed[place : place + generator.randint(1, 40)]
        case _:
            changed[place:place] = generator.randbytes(generator.randint(1, 8))
    return bytes(changed)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _refused(call: Callable[[], Any], path: Path, same: Callable[[Any], bool]) -> str:
    """How a call with a damaged file ends: a ValueError that names it, or what would have been."""
    try:
        found = call()
    except ValueError as error:
        return GOOD if str(path) in str(error) else "an error without the path"
    except Exception as error:
        return f"raised {type(error).__name__}"
    return GOOD if same(found) else "other results"


def results(count: int, seed: int) -> Counter[str]:
    """Damaged files of results: one error with the path, or the same result."""
    generator, found = random.Random(seed), Counter[str]()
    with _folder() as folder:
        path = folder / "result.json"
        whole = ni.optimize(_model(), data(), method=METHOD)
        whole.save(path)
        content, expected = path.read_bytes(), whole.to_dict()
        for _ in range(count):
            path.write_bytes(damaged(content, generator))
            found[_refused(lambda: ni.load_result(path).to_dict(), path, expected.__eq__)] += 1
    return found


def checkpoints(count: int, seed: int) -> Counter[str]:
    """Damaged checkpoints: one error with the path."""
    generator, found = random.Random(seed), Counter[str]()
    with _folder() as folder:
        path, expected = folder / "run.json", _resumed(None).scales
        content = _checkpoint(path)
        for _ in range(count):
            path.write_bytes(damaged(content, generator))
            found[_refused(lambda: _resumed(path).scales, path, expected.__eq__)] += 1
    return found


def _checkpoint(path: Path) -> bytes:
    with contextlib.suppress(Stop):
        _resumed(path, on_step=_stop)
    return path.read_bytes()


def _resumed(path: Path | None, **changes: Any) -> ni.Result:
    model = changes.pop("model", None) or _model()
    options = {"batches": data(), "method": METHOD, "checkpoint": path, "checkpoint_every": 1}
    return ni.optimize(model, **{**options, **changes})


OTHERS: dict[str, dict[str, Any]] = {
    "data": {"batches": data(1)},
    "loss": {"loss_fn": lambda y, t: 2 * F.cross_entropy(y, t)},
    "method": {"method": replace(METHOD, steps=4)},
    "model": {"model": _model(1)},
    "autocast": {"autocast": torch.bfloat16},
}


def others(count: int, seed: int) -> Counter[str]:
    """Checkpoints of other runs, in another order for every seed: refused."""
    found, changed = Counter[str](), random.Random(seed).sample(list(OTHERS.values()), count)
    with _folder() as folder:
        path = folder / "run.json"
        content = _checkpoint(path)
        for changes in changed:
            path.write_bytes(content)
            found[_refused(lambda changes=changes: _resumed(path, **changes), path, bool)] += 1
    return found


def full_disk(count: int, seed: int) -> Counter[str]:
    """No room for a file: an OSError that names it, and the old content is still there."""
    generator, found = random.Random(seed), Counter[str]()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with _folder() as folder:
        path, whole = folder / "result.json", ni.optimize(_model(), data(), method=METHOD)
        whole.save(path)
        before = path.read_bytes()
        for _ in range(count):
            resource.setrlimit(resource.RLIMIT_FSIZE, (generator.randrange(len(before)), hard))
            try:
                whole.save(path)
                outcome = "no error"
            except OSError as error:
                outcome = GOOD if str(path) in str(error) else "an error without the path"
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            left = sorted(folder.iterdir()) != [path] or path.read_bytes() != before
            found["the old file is gone" if left else outcome] += 1
    signal.signal(signal.SIGXFSZ, previous)
    return found


def kills(count: int, seed: int) -> Counter[str]:
    """SIGKILL at random times; the same call again goes on bit for bit."""
    generator, found = random.Random(seed), Counter[str]()
    names = list(METHODS)
    expected = {name: result(name) for name in names}
    begun = time.perf_counter()
    result("nio")
    usual = time.perf_counter() - begun
    for k in range(count):
        name = names[k % len(names)]
        with _folder() as folder:
            _killed(name, folder / "run.json", generator.uniform(0, 1.5 * usual))
            same = result(name, folder / "run.json", every=1) == expected[name]
            left = [path.name for path in folder.iterdir()]
        found["files are left" if left else GOOD if same else "other results"] += 1
    return found


def _killed(name: str, path: Path, delay: float) -> None:
    """Run in a child process that is killed after some seconds."""
    child = os.fork()
    if child == 0:
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
        timer.start()
        result(name, path, every=1)
        os._exit(0)
    os.waitpid(child, 0)
