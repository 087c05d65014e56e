"""One training, as in the paper's Appendix B, that survives being killed.

A run lives in a folder: ``config.json``, ``metrics.jsonl`` (one line a step and one an epoch),
``initialization.json`` and then ``checkpoint.safetensors`` while it runs, ``model.safetensors`` and
``result.json`` when it is done.
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

from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import Data
from neuroinit.experiments.models import check_name
from neuroinit.experiments.training import checkpoint
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.run import Outcome, Run
from neuroinit.experiments.training.starts import learned

MINUTES = 5.0  # between checkpoints


def train(
    config: Config,
    folder: Path,
    root: Path = Path("data"),
    download: bool = False,
    progress: bool = True,
    minutes: float = MINUTES,
) -> Outcome:
    """Train as configured; a run that is done is read, one that was interrupted goes on.

    Args:
        config: What to compute.
        folder: Where the run lives; made if it is not there.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        progress: Show a progress bar, if this is a terminal.
        minutes: Time between checkpoints.

    Raises:
        ValueError: The folder has a run of another configuration.
        Busy: Another process is at this run.

    Example:
        >>> import tempfile
        >>> config = Config(model="resnet-8", train_images=64, batch_size=32, epochs=1)
        >>> train(config, Path(tempfile.mkdtemp())).steps
        2
    """
    learned(config.method)
    check_name(config.model)
    if outcome := _read(folder, config):
        return outcome
    data = load(
        config.data, root, download, config.train_images, config.test_images, config.image_size
    )
    data.steps(config.batch_size)
    with _quiet_machine():
        run = Run(config, data, folder)
        folder.mkdir(parents=True, exist_ok=True)
        with checkpoint.claimed(folder):
            if outcome := _read(folder, config):  # another process was faster
                return outcome
            checkpoint.write_json(folder / "config.json", config.to_json())
            run.begin()
            outcome = run.go(progress, minutes)
            checkpoint.write_tensors(folder / "model.safetensors", run.model.state_dict(), {})
            checkpoint.write_json(folder / "result.json", asdict(outcome))
            run.checkpoint_path.unlink(missing_ok=True)
            return outcome


def train_model(model: nn.Module, config: Config, data: Data) -> Outcome:
    """Train a model as it is, in place, and leave no files."""
    with _quiet_machine(), tempfile.TemporaryDirectory() as folder:
        run = Run(replace(config, method="default"), data, Path(folder), model)
        run.begin()
        return run.go(progress=False, minutes=math.inf)


def _read(folder: Path, config: Config) -> Outcome | None:
    """The outcome of a run that is done; a folder with anything else than this run is refused."""
    path, done = folder / "config.json", folder / "result.json"
    if path.exists():
        try:
            found = Config.from_json(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"`{path}` is not of a run: choose another folder.") from error
        if found != config:
            raise ValueError(
                f"`{folder}` has a run of another configuration: choose another folder."
            )
    return Outcome(**json.loads(done.read_text())) if path.exists() and done.exists() else None


@contextmanager
def _quiet_machine() -> Iterator[None]:
    """The caller's random numbers come back, and cuDNN chooses the same kernels every time."""
    with torch.random.fork_rng(), torch.backends.cudnn.flags(benchmark=False, deterministic=True):
        yield
