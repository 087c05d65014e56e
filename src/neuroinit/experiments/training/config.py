"""The full description of a training run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from neuroinit.common.checks import check_choice, check_count, check_number
from neuroinit.experiments.data.augment import Augmentation


@dataclass(frozen=True)
class Config:
    """Everything that decides what a run computes.

    Args:
        model: A name of the registry, `torchvision:NAME` or `timm:NAME`.
        data: `digits`, `cifar10`, `cifar100` or `folder:PATH`.
        method: How the run starts: `default` (as built), `kaiming`, `nio` (on top of Kaiming),
            `default+nio` and others, with settings as in `nio:steps=20,gamma=2.0`.
        seed: Of the weights, the order of the data, the augmentation and dropout.
        epochs: Length of the run.
        batch_size: Images a step; an epoch has full batches only.
        optimizer: SGD with momentum 0.9, or AdamW, which does not decay tensors of one dimension.
        lr: Largest learning rate.
        weight_decay: Weight decay.
        schedule: Learning rate after warmup: cosine to zero, divided by ten at `milestones`, or
            constant.
        milestones: Epochs at which a `step` schedule divides the learning rate by ten.
        warmup_epochs: Linear warmup at the start.
        clip: Largest norm of the gradient; 0 for no clipping.
        label_smoothing: Of the cross entropy.
        augmentation: What happens to training images; what is not set depends on the data.
        train_images: Use only this many training images.
        test_images: Use only this many test images.
        image_size: Edge that images get; by default as they are, in a folder that of the first.
        init_batch_size: Images a step of the method; `batch_size` by default.
        amp: Mixed precision in bfloat16: where the device has it, always, or never.
    """

    model: str = "resnet-20"
    data: str = "digits"
    method: str = "kaiming"
    seed: int = 0
    epochs: int = 10
    batch_size: int = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1
    weight_decay: float = 1e-4
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    milestones: tuple[int, ...] = (30, 60, 90)
    warmup_epochs: float = 0.0
    clip: float = 0.0
    label_smoothing: float = 0.0
    augmentation: Augmentation = field(default_factory=Augmentation)
    train_images: int | None = None
    test_images: int | None = None
    image_size: int | None = None
    init_batch_size: int | None = None
    amp: Literal["auto", "on", "off"] = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "augmentation", self.augmentation.chosen(self.data))
        check_count("epochs", self.epochs, 1)
        check_count("batch_size", self.batch_size, 1)
        check_choice("optimizer", self.optimizer, ("sgd", "adamw"))
        check_number("lr", self.lr, 0.0)
        check_choice("schedule", self.schedule, ("cosine", "step", "constant"))
        check_choice("amp", self.amp, ("auto", "on", "off"))
        for name in ("weight_decay", "warmup_epochs", "clip"):
            check_number(name, getattr(self, name), 0.0, math.inf, closed=True)
        check_number("label_smoothing", self.label_smoothing, 0.0, 1.0, closed=True)
        if self.warmup_epochs > self.epochs:
            raise ValueError(
                f"`warmup_epochs = {self.warmup_epochs:g}` is more than `epochs = {self.epochs}`."
            )
        for name in ("crop", "cutout"):
            check_count(name, getattr(self.augmentation, name), 0)
        check_number("mixup", self.augmentation.mixup, 0.0, closed=True)
        for name in ("train_images", "test_images", "image_size", "init_batch_size"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1)

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Config:
        """The configuration of :meth:`to_json`."""
        values = dict(values)
        augmentation = Augmentation(**values.pop("augmentation"))
        milestones = tuple(values.pop("milestones"))
        return cls(**values, augmentation=augmentation, milestones=milestones)

    @property
    def key(self) -> str:
        """A short name that differs whenever a field does."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def rate(self, step: int, steps: int) -> float:
        """Learning rate at a step, with `steps` an epoch.

        Example:
            >>> Config(epochs=2, warmup_epochs=1, lr=1.0).rate(0, 4)
            0.25
            >>> Config(epochs=2, lr=1.0).rate(4, 4)
            0.5
        """
        warm, total = round(self.warmup_epochs * steps), self.epochs * steps
        if step < warm:
            return self.lr * (step + 1) / warm
        if self.schedule == "cosine":
            share = (step - warm) / max(1, total - warm)
            return self.lr * (1 + math.cos(math.pi * share)) / 2
        if self.schedule == "step":
            return self.lr * 0.1 ** sum(step >= m * steps for m in self.milestones)
        return self.lr
