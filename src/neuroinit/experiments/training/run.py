"""A run: a model on its way through Appendix B's training, and what comes of it."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.common.progress import Progress
from neuroinit.experiments.data.images import Data, mix
from neuroinit.experiments.models import build
from neuroinit.experiments.training import checkpoint
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.starts import start_


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Args:
        accuracy: Share of the test images classified correctly at the end.
        train_loss: Mean training loss of the last epoch.
        area: Mean training loss of all steps: the area under the curve, for a run of length 1.
        diverged: Whether a loss was not finite; the run ended there, and the losses are ``None``.
        steps: Number of steps.
        init_seconds: Time of the initialization method.
        train_seconds: Time of all steps and tests.
        data_share: Share of ``train_seconds`` spent waiting for data.
        classes: Number of classes.
    """

    accuracy: float
    train_loss: float | None
    area: float | None
    diverged: bool
    steps: int
    init_seconds: float
    train_seconds: float
    data_share: float
    classes: int

    @property
    def failed(self) -> bool:
        """Table 5's "fail": a loss that is not finite, or too few test images right.

        Too few are less than twice chance or, which is less with two classes, than half way from
        chance to all.

        Example:
            >>> Outcome(0.7, 0.5, 0.5, False, 10, 0.0, 1.0, 0.0, classes=2).failed
            True
        """
        chance = 1 / self.classes
        return self.diverged or self.accuracy < min(2 * chance, (1 + chance) / 2)


def device() -> torch.device:
    """The accelerator of this machine, or its CPU."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found or torch.device("cpu")


class Run:
    """The state of a run: model, optimizer, the losses so far, and the time they took."""

    def __init__(
        self, config: Config, data: Data, folder: Path, model: nn.Module | None = None
    ) -> None:
        self.config, self.data, self.folder = config, data, folder
        self.checkpoint_path = folder / "checkpoint.safetensors"
        self.metrics_path = folder / "metrics.jsonl"
        self.device = device()
        torch.manual_seed(config.seed)
        self.model = (model or build(config.model, data.classes)).to(self.device)
        self.optimizer = make_optimizer(self.model, config)
        self.per_epoch = data.steps(config.batch_size)
        self.losses: list[float] = []
        self.tests: list[float] = []  # accuracy after every epoch
        self.notes = {"init": 0.0, "train": 0.0, "data": 0.0, "bytes": 0}

    def begin(self) -> None:
        """Go on from a checkpoint, or initialize."""
        if self.checkpoint_path.exists():
            self.notes = checkpoint.restore(self.checkpoint_path, self.model, self.optimizer)
            with self.metrics_path.open("r+") as file:
                file.truncate(int(self.notes["bytes"]))
                records = [json.loads(line) for line in file]
            losses = [record["loss"] for record in records if "loss" in record]
            self.losses = [math.nan if loss is None else loss for loss in losses]
            self.tests = [record["accuracy"] for record in records if "accuracy" in record]
            return
        begun = time.perf_counter()
        size = self.config.init_batch_size or self.config.batch_size
        result = start_(
            self.model,
            self.config.method,
            self.data.samples(size, self.config.seed),
            checkpoint=self.folder / "initialization.json",
        )
        self.notes["init"] = time.perf_counter() - begun
        self.metrics_path.write_text("")
        if result is not None:
            steps = sum(record.seconds for record in result.history)  # those before a kill, too
            self.notes["init"] = max(self.notes["init"], steps)
            result.save(self.folder / "scales.json")
            self.save(0)

    def go(self, progress: bool, minutes: float) -> Outcome:
        """Train to the end."""
        total = self.config.epochs * self.per_epoch
        with (
            self.metrics_path.open("a") as metrics,
            Progress(f"{self.config.model}, {self.config.method}", total, progress) as bar,
            board(self.folder, len(self.losses) + 1) as scalar,
        ):
            saved = time.monotonic()
            while not self.ended:
                for record in self.epoch(len(self.tests)):
                    metrics.write(json.dumps(checkpoint.without_nan(record)) + "\n")
                    for name, value in record.items():
                        scalar(name, value, len(self.losses))
                    bar.show(len(self.losses), f"loss {self.losses[-1]:.3f}")
                    if time.monotonic() - saved >= 60 * minutes:
                        metrics.flush()
                        self.save(metrics.tell())
                        saved = time.monotonic()
        return self.outcome()

    @property
    def diverged(self) -> bool:
        """Whether the last loss was not finite."""
        return bool(self.losses) and not math.isfinite(self.losses[-1])

    @property
    def ended(self) -> bool:
        """Whether all epochs are done, the test of the last one, or of a diverged one, too."""
        tested = len(self.tests) * self.per_epoch >= len(self.losses)
        return len(self.tests) == self.config.epochs or (self.diverged and tested)

    def epoch(self, epoch: int) -> Iterator[dict[str, Any]]:
        """The rest of an epoch: a record for every step, and one for the test at its end."""
        first = len(self.losses) - epoch * self.per_epoch
        batches = self.data.epoch(epoch, self.config.batch_size, self.config.seed, first)
        waiting = time.perf_counter()
        for images, targets in batches:
            if self.diverged:
                break
            step = len(self.losses)
            augmented = self.config.augmentation(
                images, targets, self.data, mix(self.config.seed, epoch, step)
            )
            begun = time.perf_counter()
            rate = self.config.rate(step, self.per_epoch)
            self.losses.append(self.step(*augmented, rate))
            ended = time.perf_counter()
            self.notes["data"] += begun - waiting
            self.notes["train"] += ended - waiting
            yield {"step": step, "loss": self.losses[-1], "rate": rate}
            waiting = time.perf_counter()
        begun = time.perf_counter()
        self.tests.append(self.test())
        self.notes["train"] += time.perf_counter() - begun
        yield {"epoch": epoch, "accuracy": self.tests[-1], **self.notes}

    def step(self, inputs: Tensor, targets: Tensor, rate: float) -> float:
        """One step of the optimizer; not taken if the loss is not finite."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self.precision():
            output = self.model(inputs.to(self.device))
            loss = F.cross_entropy(
                output, targets.to(self.device), label_smoothing=self.config.label_smoothing
            )
        value = loss.item()
        if math.isfinite(value):
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if self.config.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
            self.optimizer.step()
        return value

    @torch.no_grad()
    def test(self) -> float:
        """Share of the test images that are classified correctly."""
        self.model.eval()
        correct = 0
        for inputs, targets in self.data.tests(self.config.batch_size):
            with self.precision():
                output = self.model(inputs.to(self.device))
            correct += int((output.argmax(1).cpu() == targets).sum())
        return correct / len(self.data.test)

    def precision(self) -> torch.autocast:
        """bfloat16 where it is wanted and an accelerator has it."""
        able = self.device.type != "cpu" and torch.amp.is_autocast_available(self.device.type)
        if self.device.type == "cuda":
            able = torch.cuda.is_bf16_supported()
        enabled = self.config.amp == "on" or (self.config.amp == "auto" and able)
        return torch.autocast(self.device.type, torch.bfloat16, enabled)

    def save(self, position: int) -> None:
        """Write a checkpoint; ``position`` is the length of the metrics so far."""
        self.notes["bytes"] = position
        checkpoint.save(self.checkpoint_path, self.model, self.optimizer, self.notes)

    def outcome(self) -> Outcome:
        """What came of it."""
        last = self.losses[(len(self.tests) - 1) * self.per_epoch :]
        return Outcome(
            accuracy=self.tests[-1],
            train_loss=None if self.diverged else math.fsum(last) / len(last),
            area=None if self.diverged else math.fsum(self.losses) / len(self.losses),
            diverged=self.diverged,
            steps=len(self.losses),
            init_seconds=self.notes["init"],
            train_seconds=self.notes["train"],
            data_share=self.notes["data"] / self.notes["train"],
            classes=self.data.classes,
        )


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """The optimizer of a configuration."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), config.lr, momentum=0.9, weight_decay=config.weight_decay
        )
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, config.lr, weight_decay=config.weight_decay)


@contextmanager
def board(folder: Path, step: int) -> Iterator[Callable[[str, float, int], None]]:
    """A function that logs a number to TensorBoard, where that is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        yield lambda name, value, step: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=step) as writer:
        yield writer.add_scalar
