"""The state of all random generators: isolate, save, restore and seed it."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuroinit.common.process.accelerator import random_states, seed_devices, set_random_states
from neuroinit.common.process.signals import deferred

if TYPE_CHECKING:
    from numpy import uint32
    from numpy.typing import NDArray

    NumpyState = tuple[str, NDArray[uint32], int, int, float]


class _Seeds:
    """Seeds for one call, from a separate generator that starts at torch's global state."""

    generator: torch.Generator | None = None

    def next(self) -> int:
        if self.generator is None:
            self.generator = torch.Generator()
            self.generator.set_state(torch.get_rng_state())
        return int(torch.randint(2**31, (), generator=self.generator, device="cpu"))


_seeds: ContextVar[_Seeds | None] = ContextVar("seeds", default=None)


def new_seed() -> int:
    """A seed that depends on the state of torch's global generator.

    Inside :func:`isolated` that state does not change, so that other threads are not affected.
    """
    seeds = _seeds.get()
    return int(torch.randint(2**31, (), device="cpu")) if seeds is None else seeds.next()


@contextmanager
def isolated() -> Iterator[None]:
    """A context with autograd enabled; its exit restores the state of all random generators.

    All threads share the generators, so a state is written only if it has changed. Signals such as
    Ctrl-C are delayed inside, except where they are allowed, see
    :mod:`neuroinit.common.process.signals`.
    """
    with deferred(), torch.inference_mode(False), torch.enable_grad():
        before, token = GeneratorStates(), _seeds.set(_Seeds())
        try:
            yield
        finally:
            _seeds.reset(token)
            if before.changed():
                before.restore()


class GeneratorStates:
    """A copy of the states of all random generators in use."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.devices = random_states()
        self.python = random.getstate()
        numpy = sys.modules.get("numpy")
        self.numpy = numpy.random.get_state() if numpy else None

    def changed(self) -> bool:
        """Whether random numbers were drawn or a generator was seeded since the copy."""
        now = GeneratorStates()
        return not (
            torch.equal(self.torch, now.torch)
            and self.python == now.python
            and (self.numpy is None or now.numpy is None or _same(self.numpy, now.numpy))
            and all(torch.equal(a, b) for a, b in zip(self.devices, now.devices, strict=False))
        )

    def restore(self) -> None:
        """Set all generators to these states."""
        torch.set_rng_state(self.torch)
        set_random_states(self.devices)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


def _same(state: NumpyState, other: NumpyState) -> bool:
    """Whether two states of numpy's generator are the same."""
    return bool(state[2:] == other[2:] and (state[1] == other[1]).all())


def random_state() -> str:
    """The states of all generators as JSON."""
    found: dict[str, object] = {
        "torch": _written(torch.get_rng_state()),
        "devices": [_written(state) for state in random_states()],
        "python": random.getstate(),
    }
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        found["numpy"] = [name, keys.tolist(), *rest]
    return json.dumps(found)


def set_random_state(text: str) -> None:
    """Restore the states that :func:`random_state` returned."""
    if text == random_state():
        return  # other threads use these generators, too
    _start_seeds_again()
    found = json.loads(text)
    torch.set_rng_state(_read(found["torch"]))
    set_random_states([_read(state) for state in found.get("devices", [])])
    version, keys, gauss = found["python"]
    random.setstate((version, tuple(keys), gauss))
    if "numpy" in found and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(found["numpy"]))


def _start_seeds_again() -> None:
    """Let :func:`new_seed` follow the new state of torch's generator."""
    seeds = _seeds.get()
    if seeds is not None:
        seeds.generator = None


def _written(state: Tensor) -> str:
    return bytes(state.tolist()).hex()


def _read(text: str) -> Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8, device="cpu")


def seed_all(seed: int) -> None:
    """Seed all generators in use, faster than ``torch.manual_seed`` does."""
    _start_seeds_again()
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    seed_devices(seed)
