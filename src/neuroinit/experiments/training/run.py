"""A training run: initialize or continue, train to the end, return the outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.common.progress import Progress
from neuroinit.experiments.data.images import ImageData, combined_seed
from neuroinit.experiments.models import build
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.device import device, mixed_precision
from neuroinit.experiments.training.folder import checkpoint
from neuroinit.experiments.training.folder.metrics import open_metrics, read_metrics
from neuroinit.experiments.training.initializations import initialize_
from neuroinit.experiments.training.optimizers import make_optimizer, set_rate, take_step
from neuroinit.experiments.training.outcome import Outcome


class Run:
    """A training run and its state.

    Args:
        config: What to compute.
        data: Training and test images.
        folder: Folder of the run's files.
        model: A model to train instead of the one that the configuration names.
    """

    def __init__(
        self, config: Config, data: ImageData, folder: Path, model: nn.Module | None = None
    ) -> None:
        self.config, self.data, self.folder = config, data, folder
        self.checkpoint_path = folder / "checkpoint.safetensors"
        self.metrics_path = folder / "metrics.jsonl"
        self.device = device()
        torch.manual_seed(config.seed)
        self.model = (model or build(config.model, data.classes)).to(self.device)
        self.optimizer = make_optimizer(self.model, config)
        self.steps_per_epoch = data.steps_per_epoch(config.batch_size)
        self.losses: list[float] = []  # one per step
        self.accuracies: list[float] = []  # on the test images, one per epoch
        self.seconds = {"init": 0.0, "train": 0.0, "data": 0.0}

    def begin(self) -> None:
        """Continue from the checkpoint if there is one, else initialize the model."""
        if self.checkpoint_path.exists():
            notes = checkpoint.restore(self.checkpoint_path, self.model, self.optimizer)
            size = int(notes.pop("metrics_bytes"))
            self.seconds = notes
            self.losses, self.accuracies = read_metrics(self.metrics_path, size)
        else:
            self._initialize()

    def _initialize(self) -> None:
        begun = time.perf_counter()
        size = self.config.init_size
        result = initialize_(
            self.model,
            self.config.method,
            self.data.unaugmented(size, self.config.seed),
            checkpoint=self.folder / "initialization.json",
        )
        self.seconds["init"] = time.perf_counter() - begun
        self.metrics_path.write_text("")
        if result is not None:
            steps = sum(record.seconds for record in result.history)  # also those before a kill
            self.seconds["init"] = max(self.seconds["init"], steps)
            result.save(self.folder / "scales.json")
            self._save(0)

    def train(self, progress: bool, minutes: float) -> Outcome:
        """Train to the end, and write a checkpoint every ``minutes``."""
        total = self.config.epochs * self.steps_per_epoch
        with (
            open_metrics(self.metrics_path, len(self.losses) + 1) as metrics,
            Progress(f"{self.config.model}, {self.config.method}", total, progress) as bar,
        ):
            saved = time.monotonic()
            while not self.ended:
                for record in self._epoch(len(self.accuracies)):
                    metrics.write(record, len(self.losses))
                    bar.show(len(self.losses), f"loss {self.losses[-1]:.3f}")
                    if time.monotonic() - saved >= 60 * minutes:
                        self._save(metrics.flush())
                        saved = time.monotonic()
        return self.outcome()

    @property
    def diverged(self) -> bool:
        """Whether the last loss was not finite."""
        return bool(self.losses) and not math.isfinite(self.losses[-1])

    @property
    def ended(self) -> bool:
        """Whether the last epoch, or the one that diverged, was trained and tested."""
        tested = len(self.accuracies) * self.steps_per_epoch >= len(self.losses)
        return len(self.accuracies) == self.config.epochs or (self.diverged and tested)

    def _epoch(self, epoch: int) -> Iterator[dict[str, float]]:
        """Train the rest of an epoch and test; yields a record for every step and for the test."""
        first = len(self.losses) - epoch * self.steps_per_epoch
        batches = self.data.epoch(epoch, self.config.batch_size, self.config.seed, first)
        waiting = time.perf_counter()
        for images, targets in batches:
            if self.diverged:
                break
            step = len(self.losses)
            seed = combined_seed(self.config.seed, epoch, step)
            inputs, targets = self.config.augmentation(images, targets, self.data, seed)
            begun = time.perf_counter()
            rate = self.config.learning_rate(step, self.steps_per_epoch)
            self.losses.append(self.step(inputs, targets, rate))
            ended = time.perf_counter()
            self.seconds["data"] += begun - waiting
            self.seconds["train"] += ended - waiting
            yield {"step": step, "loss": self.losses[-1], "rate": rate}
            waiting = time.perf_counter()
        begun = time.perf_counter()
        self.accuracies.append(self.test())
        self.seconds["train"] += time.perf_counter() - begun
        yield {"epoch": epoch, "accuracy": self.accuracies[-1], **self.seconds}

    def step(self, inputs: Tensor, targets: Tensor, rate: float) -> float:
        """Take one step with a learning rate, unless the loss is not finite; returns the loss."""
        self.model.train()
        set_rate(self.optimizer, rate)
        with mixed_precision(self.device, self.config.amp):
            loss = F.cross_entropy(
                self.model(inputs.to(self.device)),
                targets.to(self.device),
                label_smoothing=self.config.label_smoothing,
            )
        return take_step(self.optimizer, loss, self.model.parameters(), self.config.clip)

    @torch.no_grad()
    def test(self) -> float:
        """Share of the test images that are classified correctly."""
        self.model.eval()
        correct = 0
        for inputs, targets in self.data.tests(self.config.batch_size):
            with mixed_precision(self.device, self.config.amp):
                output = self.model(inputs.to(self.device))
            correct += int((output.argmax(1).cpu() == targets).sum())
        return correct / len(self.data.test)

    def _save(self, metrics_bytes: int) -> None:
        notes = {**self.seconds, "metrics_bytes": metrics_bytes}
        checkpoint.save(self.checkpoint_path, self.model, self.optimizer, notes)

    def outcome(self) -> Outcome:
        """The result so far."""
        last = self.losses[(len(self.accuracies) - 1) * self.steps_per_epoch :]
        return Outcome(
            accuracy=self.accuracies[-1],
            train_loss=None if self.diverged else math.fsum(last) / len(last),
            area=None if self.diverged else math.fsum(self.losses) / len(self.losses),
            diverged=self.diverged,
            steps=len(self.losses),
            init_seconds=self.seconds["init"],
            train_seconds=self.seconds["train"],
            data_share=self.seconds["data"] / self.seconds["train"],
            classes=self.data.classes,
        )
