"""Train as configured in a folder, and continue runs that were killed.

The folder of a run has ``config.json``, ``metrics.jsonl`` (one line per step and per epoch), and
``scales.json`` if a method learned scales. While the run lasts, it has ``initialization.json`` and
then ``checkpoint.safetensors``. At the end, it has ``model.safetensors`` and ``result.json``.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn

from neuroinit.common.process.random_state import isolated
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import ImageData
from neuroinit.experiments.models import check_name
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.folder.files import locked, write_json, write_tensors
from neuroinit.experiments.training.initializations import learned_method
from neuroinit.experiments.training.outcome import Outcome
from neuroinit.experiments.training.run import Run

MINUTES = 5.0  # between checkpoints


def train(
    config: Config,
    folder: Path,
    root: Path = Path("data"),
    download: bool = False,
    progress: bool = True,
    minutes: float = MINUTES,
) -> Outcome:
    """Train as configured.

    A run that is complete is read from its folder. A run that was interrupted continues, with the
    same result as without the interruption.

    Args:
        config: What to compute.
        folder: Folder of the run; created if it does not exist.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        progress: Show a progress bar if standard error is a terminal.
        minutes: Time between checkpoints.

    Raises:
        ValueError: The folder has a run of another configuration.
        Busy: Another process works on this run.

    Example:
        >>> import tempfile
        >>> config = Config(model="resnet-8", train_images=64, batch_size=32, epochs=1)
        >>> train(config, Path(tempfile.mkdtemp())).steps
        2
    """
    learned_method(config.method)
    check_name(config.model)
    if outcome := _completed(folder, config):
        return outcome
    data = load(
        config.data, root, download, config.train_images, config.test_images, config.image_size
    )
    data.steps_per_epoch(config.batch_size)
    with _deterministic():
        run = Run(config, data, folder)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            if outcome := _completed(folder, config):  # by another process in the meantime
                return outcome
            write_json(folder / "config.json", config.to_json())
            run.begin()
            outcome = run.train(progress, minutes)
            write_tensors(folder / "model.safetensors", run.model.state_dict(), {})
            write_json(folder / "result.json", asdict(outcome))
            run.checkpoint_path.unlink(missing_ok=True)
            return outcome


def train_model(model: nn.Module, config: Config, data: ImageData) -> Outcome:
    """Train a model in place from its current weights, without leaving files."""
    with _deterministic(), tempfile.TemporaryDirectory() as folder:
        run = Run(replace(config, method="default"), data, Path(folder), model)
        run.begin()
        return run.train(progress=False, minutes=math.inf)


def _completed(folder: Path, config: Config) -> Outcome | None:
    """The outcome of the run in a folder, ``None`` if it is not complete.

    Raises:
        ValueError: The folder has something else than a run of this configuration.
    """
    path, result = folder / "config.json", folder / "result.json"
    if not path.exists():
        return None
    try:
        found = Config.from_json(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"`{path}` is not the configuration of a run: choose another folder."
        ) from error
    if found != config:
        raise ValueError(f"`{folder}` has a run of another configuration: choose another folder.")
    return Outcome(**json.loads(result.read_text())) if result.exists() else None


@contextmanager
def _deterministic() -> Iterator[None]:
    """Restore the caller's random state afterwards, and use deterministic cuDNN kernels."""
    with isolated(), torch.backends.cudnn.flags(benchmark=False, deterministic=True):
        yield
