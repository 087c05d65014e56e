"""A run's files: JSON, and its whole state in one safetensors file."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuroinit.common.errors import needs_extra
from neuroinit.common.files import replacing, write_text


class Busy(RuntimeError):
    """Another process works in a folder."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep a folder to this process; when the process ends, however it ends, it is free again.

    The file of the lock is removed when the work is done: whoever comes after that finds it done.
    Windows has no such locks: nothing keeps two processes apart there.

    Raises:
        Busy: Another process has it.
    """
    if importlib.util.find_spec("fcntl") is None:
        yield
        return
    import fcntl

    path = folder / ".lock"
    with path.open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not inherited by workers
        except (BlockingIOError, PermissionError) as error:
            raise Busy(
                f"Another process works in `{folder}`. Wait for it, or choose another folder."
            ) from error
        yield
        path.unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(values, indent=1) + "\n")


def without_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no nan and no infinity: ``None`` in their place.

    Example:
        >>> without_nan({"step": 3, "loss": float("nan")})
        {'step': 3, 'loss': None}
    """
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Write tensors and JSON notes into one safetensors file; shared memory is copied."""
    with needs_extra("experiments"):
        from safetensors.torch import save_file
    separate = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    with replacing(path) as temporary:
        save_file(separate, temporary, {"notes": json.dumps(notes)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`write_tensors` wrote."""
    with needs_extra("experiments"):
        from safetensors import safe_open
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["notes"])


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, notes: dict[str, Any]
) -> None:
    """Write a model, its optimizer and the state of the random numbers."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{k}": v for k, v in values.items() if v is not None}
    tensors |= {f"random.{name}": read() for name, (read, _) in _random().items()}
    write_tensors(path, tensors, notes)


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Put back what :func:`save` wrote, and return its notes."""
    tensors, notes = read_tensors(path)
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "random": {}}
    for name, tensor in tensors.items():
        group, _, key = name.partition(".")
        groups[group][key] = tensor
    model.load_state_dict(groups["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in groups["optimizer"].items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for name, (_, write) in _random().items():
        if name in groups["random"]:
            write(groups["random"][name])
    return notes


def _random() -> dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], None]]]:
    """Generators that a model's dropout may use, as pairs of reading and writing."""
    found: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], None]]]
    found = {"cpu": (torch.get_rng_state, torch.set_rng_state)}
    if torch.cuda.is_available():
        found["cuda"] = (torch.cuda.get_rng_state, torch.cuda.set_rng_state)
    return found
