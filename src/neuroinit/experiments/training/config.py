"""The configuration of a training run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Literal

from neuroinit.common.checks import check_choice, check_count, check_number
from neuroinit.common.sealed_json import JSON, of_kind
from neuroinit.experiments.data.augmentation import Augmentation


@dataclass(frozen=True)
class Config:
    """Everything that determines the result of a run.

    Args:
        model: A model such as `resnet-20` or `wrn-28-10-nobn`, `torchvision:NAME`, `timm:NAME`, or
            your own as `FILE.py:FUNCTION`.
        data: `digits`, `cifar10`, `cifar100` or `folder:PATH`.
        method: The initialization: `default` (the model as built), `kaiming`, `nio` (on top of
            Kaiming), `default+nio` and others, with settings as in `nio:steps=20,gamma=2.0`.
        seed: Seed of the weights, the order of the data, the augmentation and dropout.
        epochs: Number of epochs.
        batch_size: Images per step; an incomplete batch at the end of an epoch is dropped.
        optimizer: SGD with momentum 0.9, or AdamW without weight decay for biases and norms.
        lr: Largest learning rate.
        weight_decay: Weight decay.
        schedule: Learning rate after warmup: cosine to zero, divided by ten at `milestones`, or
            constant.
        milestones: Epochs at which the `step` schedule divides the learning rate by ten.
        warmup_epochs: Epochs of linear warmup.
        clip: Largest norm of the gradient; 0 for no clipping.
        label_smoothing: Label smoothing of the cross entropy, at least 0 and below 1.
        augmentation: How training images are augmented.
        train_images: Use only this many training images. By default all.
        test_images: Use only this many test images. By default all.
        image_size: Resize images to this height and width. By default they keep their size; images
            in a folder get the shorter edge of the first one.
        init_batch_size: Images per step of the initialization method. By default `batch_size`.
        amp: Mixed precision in bfloat16: if the device supports it, always, or never.
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
        object.__setattr__(self, "augmentation", self.augmentation.with_defaults(self.data))
        self._check_training()
        for name in ("crop", "cutout"):
            check_count(name, getattr(self.augmentation, name), 0)
        check_number("mixup", self.augmentation.mixup, 0.0, closed=True)
        for name in ("train_images", "test_images", "image_size", "init_batch_size"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1)

    def _check_training(self) -> None:
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

    def to_json(self) -> dict[str, JSON]:
        """All fields as values that JSON has."""
        found: dict[str, JSON] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found

    @classmethod
    def from_json(cls, values: JSON) -> Config:
        """The configuration from which :meth:`to_json` made ``values``."""
        fields = of_kind(dict, values).copy()
        augmentation = Augmentation(**fields.pop("augmentation"))
        milestones = tuple(fields.pop("milestones"))
        return cls(**fields, augmentation=augmentation, milestones=milestones)

    @property
    def init_size(self) -> int:
        """Images per step of the initialization."""
        return self.init_batch_size or self.batch_size

    @property
    def key(self) -> str:
        """Ten hexadecimal digits that differ between configurations."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step, counted from 0.

        Example:
            >>> Config(epochs=2, warmup_epochs=1, lr=1.0).learning_rate(0, 4)
            0.25
            >>> Config(epochs=2, lr=1.0).learning_rate(4, 4)
            0.5
        """
        warmup, total = round(self.warmup_epochs * steps_per_epoch), self.epochs * steps_per_epoch
        if step < warmup:
            return self.lr * (step + 1) / warmup
        if self.schedule == "cosine":
            share = (step - warmup) / max(1, total - warmup)
            return self.lr * (1 + math.cos(math.pi * share)) / 2
        if self.schedule == "step":
            return self.lr * 0.1 ** sum(step >= m * steps_per_epoch for m in self.milestones)
        return self.lr
