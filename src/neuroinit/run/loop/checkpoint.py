"""The state of a run in a file, from which an interrupted run continues."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_instance
from neuroinit.common.errors import warn
from neuroinit.common.files import FileLock, remove_temporary_files, write_text
from neuroinit.common.process.random_state import random_state
from neuroinit.common.sealed_json import JSON, of_kind, plain, sealed, unsealed
from neuroinit.distributed.ranks import Ranks
from neuroinit.distributed.same_tensors import SAME_START, digests
from neuroinit.model.problem import Problem
from neuroinit.run.loop.identity import batch_digest, function_digest

FORMAT = "neuroinit-checkpoint-5"
_WHAT = "checkpoint"
_AFRESH = "Remove the file to start from the beginning, or pass another path."

# part of the identity -> end of the sentence "The checkpoint belongs to a run with ..."
_OTHER = {
    "method": "another method, or other settings of it",
    "parameters": "another model, or other initial values",
    "modules": "another model: other types of modules",
    "scaled": "another choice of parameters",
    "loss": "another loss",
    "autocast": "another `autocast`",
    "world": "another number of ranks",
    "data": "other data: the first batch differs",
}
# part of the identity that must be the same on all ranks -> its name, and how to fix a difference
_COMMON = {
    "parameters": ("parameters", SAME_START),
    "method": ("settings of the method", "Pass the same `method`."),
    "scaled": ("trainable parameters", "Freeze the same parameters on every rank."),
    "autocast": ("`autocast`", "Pass the same `autocast`."),
    "options": ("options", "Pass the same `engine` and `microbatch`, and `checkpoint` to all."),
}


class Checkpoint:
    """A file that rank 0 writes and all ranks read; no two runs can use it at once.

    Args:
        path: The file; ``None`` for none.
        every: Steps between two writes.
        ranks: The processes of the run.

    Attributes:
        found: The content of the file, the same on every rank; ``None`` if there is no file.

    Raises:
        TypeError: If the path is none.
        ValueError: If the folder of the file does not exist, the file is not a checkpoint or is
            damaged, or another run uses it.
    """

    def __init__(self, path: str | os.PathLike[str] | None, every: int, ranks: Ranks) -> None:
        if path is not None:
            check_instance("checkpoint", path, (str, os.PathLike), "the path of a file")
        self.path = None if path is None else Path(path)
        self.every, self.ranks = every, ranks
        self.identity: dict[str, JSON] = {}
        self._lock: FileLock | None = None
        if self.path is not None and ranks.rank == 0:
            self._open(self.path)
        try:
            self.found = self._read()
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> None:
        made = path.absolute().parent.is_dir()
        if not made or (path.exists() and not path.is_file()):
            raise ValueError(
                "Parameter `checkpoint` should be a file in a folder that exists. Found "
                f"`checkpoint = {str(path)!r}`"
                + (", which is no file." if made else ". Make the folder first.")
            )
        try:
            self._lock = FileLock(path)
        except BlockingIOError as error:
            raise ValueError(
                f"Another run uses the checkpoint `{path}`. Wait for its end, or pass another path."
            ) from error
        remove_temporary_files(path)

    def _read(self) -> dict[str, JSON] | None:
        data = b""
        if self.ranks.rank == 0 and self.path is not None and self.path.exists():
            data = self.path.read_bytes() or b" "
        text = self.ranks.first(data.hex())
        if not text:
            return None
        with self.naming():
            return unsealed(bytes.fromhex(text), self.path, _WHAT, FORMAT)

    def random_states(self) -> list[str]:
        """Every rank's random state at the beginning of the run."""
        if self.found is None:
            return self.ranks.texts(random_state())
        with self.naming():
            return [str(text) for text in of_kind(list, self.found["random"])]

    @contextmanager
    def naming(self) -> Iterator[None]:
        """A context in which errors become a ``ValueError`` that names the file."""
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            known = isinstance(error, ValueError) and str(self.path) in str(error)
            text = str(error) if known else f"The checkpoint `{self.path}` is damaged: {error!r}."
            raise ValueError(f"{text} {_AFRESH}") from error

    def identify(
        self,
        problem: Problem,
        settings: Mapping[str, JSON],
        schedule: Sequence[JSON],
        memory_limit: int | None,
    ) -> None:
        """Describe this run; raise if the ranks, or the file, describe another run.

        Args:
            problem: The model and its loss.
            settings: The settings of the method.
            schedule: The user's engine and micro-batch.
            memory_limit: The memory limit of this rank, in bytes.
        """
        if self.path is None and self.ranks.alone:
            return
        whole = {
            "method": settings,
            "parameters": {} if problem.sharded else digests(problem.original),
            "modules": {n: type(m).__qualname__ for n, m in problem.model.named_modules()},
            "scaled": problem.scaled,
            "loss": [function_digest(problem.compute_loss or problem.loss_fn), problem.has_loss],
            "autocast": str(problem.autocast),
            "world": self.ranks.world,
            "options": [*schedule, self.path is not None],
        }
        text = re.sub(r" at 0x[0-9a-f]+", "", json.dumps(whole))  # addresses of unnamed functions
        self.identity = json.loads(text)
        for key, (what, fix) in _COMMON.items():
            self.ranks.check_same(what, json.dumps(self.identity[key]), fix)
        self.identity["limits"] = self.ranks.texts(json.dumps(memory_limit))
        if problem.sharded:
            self.identity["parameters"] = self.ranks.texts(json.dumps(digests(problem.original)))
        self._check(set(_OTHER) - {"data"})

    @property
    def same_options(self) -> bool:
        """Whether the earlier run had the same engine, micro-batch and memory limits as options."""
        known = {} if self.found is None else of_kind(dict, self.found["identity"])
        return all(known.get(k) == self.identity[k] for k in ("options", "limits"))

    def identify_data(self, first: Batch) -> None:
        """Describe the data of this run by the first batch of every rank, and compare as above."""
        if self.path is not None:
            self.identity["data"] = self.ranks.texts(batch_digest(first))
            self._check({"data"})

    def _check(self, keys: set[str]) -> None:
        if self.found is None:
            return
        known = of_kind(dict, self.found["identity"])
        for key, what in _OTHER.items():
            if key in keys and known.get(key) != self.identity[key]:
                text = f"The checkpoint `{self.path}` belongs to a run with {what}."
                raise ValueError(f"{text} {_AFRESH}")

    def due(self, done: int) -> bool:
        """Whether the state is to be written after ``done`` steps."""
        return self.path is not None and done % self.every == 0

    def write(self, values: Mapping[str, JSON]) -> None:
        """Replace the state in the file."""
        if self.path is not None and self.ranks.rank == 0:
            write_text(self.path, sealed({"format": FORMAT, "identity": self.identity, **values}))

    def remove(self) -> None:
        """Remove the file at the end of the run; warn if that is not possible."""
        if self.path is None or self.ranks.rank > 0:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            warn(
                f"The checkpoint `{self.path}` could not be removed: {error.strerror}. The run is "
                "complete; remove the file before the next one."
            )

    def close(self) -> None:
        """Let other runs use the file."""
        if self._lock is not None:
            self._lock.close()


def written(tensor: Tensor) -> JSON:
    """A tensor for JSON, exactly: Python writes as many digits as a float64 needs."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "values": plain(tensor.detach().cpu().reshape(-1).tolist()),
    }


def read_tensor(given: JSON) -> Tensor:
    """The inverse of :func:`written`."""
    data = of_kind(dict, given)
    values = [float(v) if isinstance(v, str) else v for v in data["values"]]
    dtype = getattr(torch, data["dtype"])
    return torch.tensor(values, dtype=dtype, device="cpu").reshape(data["shape"])
