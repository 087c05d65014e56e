"""The state of all random generators: isolated, saved, seeded."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from neuroinit.common.signals import deferred


@contextmanager
def isolated() -> Iterator[None]:
    """Enable autograd in any mode of the caller's; restore all random states on leaving.

    Interrupts wait inside, except where they are allowed, see :mod:`neuroinit.common.signals`.
    """
    with deferred():
        numpy = sys.modules.get("numpy")
        python_state = random.getstate()
        numpy_state = numpy.random.get_state() if numpy else None
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
        with (
            torch.random.fork_rng(devices=devices),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            try:
                yield
            finally:
                random.setstate(python_state)
                if numpy:
                    numpy.random.set_state(numpy_state)


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
    """Seed all generators in use, faster than ``torch.manual_seed`` does."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
