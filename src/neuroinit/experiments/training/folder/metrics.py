"""Metrics of a run: a line of JSON for every record, and TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from neuroinit.experiments.training.folder.files import without_nan


class MetricsLog:
    """Writes records to an open file and to TensorBoard."""

    def __init__(self, file: IO[str], log_scalar: Callable[[str, float, int], None]) -> None:
        self._file, self._log_scalar = file, log_scalar

    def write(self, record: Mapping[str, float], step: int) -> None:
        """Append a record; ``step`` is where TensorBoard shows it."""
        self._file.write(json.dumps(without_nan(record)) + "\n")
        for name, value in record.items():
            self._log_scalar(name, value, step)

    def flush(self) -> int:
        """Write buffered lines to the file, and return its size in bytes."""
        self._file.flush()
        return self._file.tell()


@contextmanager
def open_metrics(path: Path, step: int) -> Iterator[MetricsLog]:
    """Append to a metrics file; TensorBoard drops what it has from ``step`` on."""
    with path.open("a") as file, _tensorboard(path.parent, step) as log_scalar:
        yield MetricsLog(file, log_scalar)


def read_metrics(path: Path, size: int) -> tuple[list[float], list[float]]:
    """Cut a metrics file to ``size`` bytes, and read it.

    Returns:
        The loss of every step, and the test accuracy after every epoch.
    """
    with path.open("r+") as file:
        file.truncate(size)
        records = [json.loads(line) for line in file]
    losses = [record["loss"] for record in records if "loss" in record]
    accuracies = [record["accuracy"] for record in records if "accuracy" in record]
    return [math.nan if loss is None else loss for loss in losses], accuracies


@contextmanager
def _tensorboard(folder: Path, step: int) -> Iterator[Callable[[str, float, int], None]]:
    if importlib.util.find_spec("tensorboard") is None:
        yield lambda name, value, step: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=step) as writer:
        yield writer.add_scalar
