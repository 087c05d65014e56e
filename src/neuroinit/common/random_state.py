"""The state of all random generators: isolated, saved, seeded."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _twice(function: Callable[..., None], *arguments: Any) -> None:
    """Run what can be repeated to its end, even if Ctrl-C is pressed in the middle."""
    try:
        function(*arguments)
    except BaseException:
        function(*arguments)
        raise


@contextmanager
def isolated() -> Iterator[None]:
    """Autograd works in whatever mode the caller is; random states come back as they were."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices), torch.inference_mode(False), torch.enable_grad():
        try:
            yield
        finally:
            _twice(random.setstate, python_state)
            if numpy:
                _twice(numpy.random.set_state, numpy_state)


def random_state() -> str:
    """The states of the CPU's generators as JSON."""
    found: dict[str, Any] = {
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
        "python": random.getstate(),
    }
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        found["numpy"] = [name, keys.tolist(), *rest]
    return json.dumps(found)


def set_random_state(text: str) -> None:
    """Continue from what :func:`random_state` found."""
    found = json.loads(text)
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(found["torch"])), dtype=torch.uint8))
    version, keys, gauss = found["python"]
    random.setstate((version, tuple(keys), gauss))
    if "numpy" in found and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(found["numpy"]))


def seed_all(seed: int) -> None:
    """Seed the generators in use; ``torch.manual_seed`` formats a stack trace for idle ones."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
