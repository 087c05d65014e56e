"""Files of a run: a lock on its folder, JSON, and tensors in the safetensors format."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from neuroinit.common.errors import needs_extra
from neuroinit.common.files import FileLock, replacing, write_text
from neuroinit.common.sealed_json import JSON


class Busy(RuntimeError):
    """Another process works in a folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process.

    Raises:
        Busy: Another process has the lock.
    """
    try:
        lock = FileLock(f"{folder}{os.sep}")  # the file `.lock` in it
    except BlockingIOError as error:
        raise Busy(
            f"Another process works in `{folder}`. Wait for it, or choose another folder."
        ) from error
    try:
        yield
    finally:
        lock.close()


def write_json(path: Path, values: object) -> None:
    """Write a JSON file, completely or not at all."""
    write_text(path, json.dumps(values, indent=1) + "\n")


def without_nan(record: Mapping[str, object]) -> dict[str, object]:
    """Replace nan and infinity, which JSON does not have, by ``None``.

    Other programs read these files, and for them a missing number is ``null``. Saved results are
    read by :func:`neuroinit.load_result` and keep the difference, see ``common/sealed_json.py``.

    Example:
        >>> without_nan({"step": 3, "loss": float("nan")})
        {'step': 3, 'loss': None}
    """
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, object]) -> None:
    """Write tensors and JSON notes to one safetensors file, completely or not at all.

    Tensors that share memory are written separately, since the format does not allow sharing.
    """
    with needs_extra("experiments"):
        from safetensors.torch import save_file
    separate = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    with replacing(path) as temporary:
        save_file(separate, temporary, {"notes": json.dumps(notes)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, JSON]]:
    """Read the tensors and notes that :func:`write_tensors` wrote."""
    with needs_extra("experiments"):
        from safetensors import safe_open
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["notes"])
