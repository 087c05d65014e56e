"""A run that was stopped goes on where it was: its state as JSON, whole or not there at all."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.files import write_text
from neuroinit.common.tensors import fingerprint
from neuroinit.distributed.ranks import Ranks
from neuroinit.model.problem import Problem

FORMAT = "neuroinit-checkpoint-2"
KEYS = {
    "identity",
    "random",
    "taken",
    "scales",
    "state",
    "history",
    "resolved",
    "schedule",
    "blocked",
    "still",
    "independent",
}
_SAME = (
    (
        "parameters",
        "parameters",
        "Use the same seed on every rank before the model is made, or wrap it in "
        "DistributedDataParallel, which sends those of rank 0 to all.",
    ),
    ("method", "settings of the method", "Pass the same `method`."),
    ("scaled", "trainable parameters", "Freeze the same parameters on every rank."),
)


class Checkpoint:
    """A file that rank 0 writes and all ranks read.

    Args:
        path: The file; ``None`` for none.
        every: Steps between two writes.
        ranks: The processes of the run.

    Raises:
        ValueError: If there is no folder for the file.
    """

    def __init__(self, path: str | os.PathLike[str] | None, every: int, ranks: Ranks) -> None:
        self.path = None if path is None else Path(path)
        self.every, self.ranks = every, ranks
        self.identity: dict[str, Any] = {}
        if self.path is not None and ranks.rank == 0 and not self.path.absolute().parent.is_dir():
            raise ValueError(
                f"Parameter `checkpoint` should be a file in a folder that exists. Found "
                f"`checkpoint = {str(path)!r}`. Make the folder first."
            )

    def read(self) -> dict[str, Any] | None:
        """What a run before this one left, the same on every rank; ``None`` if there is nothing.

        Raises:
            ValueError: If the file is no checkpoint.
        """
        text = ""
        if self.ranks.rank == 0 and self.path is not None and self.path.exists():
            text = self.path.read_text(errors="replace") or " "
        text = self.ranks.first(text)
        return _parsed(self.path, text) if text else None

    def identify(self, problem: Problem, settings: dict[str, Any]) -> None:
        """Say which run this is, as soon as that is known; all ranks have to say the same."""
        if self.path is None and self.ranks.alone:
            return
        values = {n: [*t.shape, fingerprint(t)] for n, t in problem.original.items()}
        whole = {"method": settings, "parameters": values, "scaled": problem.scaled}
        text = re.sub(r" at 0x[0-9a-f]+", "", json.dumps(whole))  # of functions without a name
        self.identity = json.loads(text)
        for key, what, fix in _SAME[1:] if problem.sharded else _SAME:
            self.ranks.check_same(what, json.dumps(self.identity[key]), fix)

    def check(self, found: dict[str, Any]) -> None:
        """Raise if the file is of another method or model."""
        for key, what in (
            ("method", "method, or of one with other settings"),
            ("parameters", "model, or of one with other initial values"),
            ("scaled", "choice of parameters"),
        ):
            if found["identity"].get(key) != self.identity[key]:
                raise ValueError(
                    f"The checkpoint `{self.path}` is of another {what}. Remove it to start afresh,"
                    " or pass another path."
                )

    def due(self, done: int) -> bool:
        """Whether the state after so many steps is to be written."""
        return self.path is not None and done % self.every == 0

    def write(self, values: dict[str, Any]) -> None:
        """Put the state in the place of the one before it."""
        if self.path is None or self.ranks.rank > 0:
            return
        content = {"format": FORMAT, "identity": self.identity, **values}
        write_text(self.path, json.dumps(content, allow_nan=False))

    def remove(self) -> None:
        """The run has come to its end."""
        if self.path is not None and self.ranks.rank == 0:
            self.path.unlink(missing_ok=True)


def _parsed(path: Path | None, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"The checkpoint `{path}` is no JSON file: {error}.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(
            f"`{path}` is no checkpoint of this version of neuroinit: expected "
            f"`format = {FORMAT!r}`. Remove it, or pass another path."
        )
    missing = KEYS - found.keys()
    if missing:
        raise ValueError(f"The checkpoint `{path}` is not complete: {sorted(missing)} is missing.")
    return found


def written(tensor: Tensor) -> dict[str, Any]:
    """A tensor for JSON, exactly: Python writes as many digits as a float64 needs."""
    values = tensor.detach().cpu().reshape(-1).tolist()
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "values": [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in values],
    }


def read_tensor(data: dict[str, Any]) -> Tensor:
    """What :func:`written` made of a tensor."""
    values = [float(v) if isinstance(v, str) else v for v in data["values"]]
    dtype = getattr(torch, data["dtype"])
    return torch.tensor(values, dtype=dtype, device="cpu").reshape(data["shape"])
