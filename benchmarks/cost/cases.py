"""What `make bench` measures: models, ways of taking a step, and the grid of both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

import neuroinit as ni
from neuroinit.experiments import vision
from neuroinit.experiments.models import build
from neuroinit.experiments.models.small_networks import Residual, kaiming


def residual(blocks: int = 18, width: int = 16, normalized: bool = False) -> nn.Module:
    """Residual blocks of two 3x3 convolutions, at half of Kaiming's size without normalization."""

    def convolution(channels: int) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(width)] if normalized else []
        return [nn.Conv2d(channels, width, 3, padding=1, bias=not normalized), *norm]

    body = [Residual(*convolution(width), nn.ReLU(), *convolution(width)) for _ in range(blocks)]
    stem = nn.Sequential(*convolution(3))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    model = kaiming(nn.Sequential(stem, *body, *head))
    return model if normalized else halved(model)


def halved(model: nn.Module) -> nn.Module:
    """All parameters times a half, so that deep networks without normalization stay finite."""
    for parameter in model.parameters():
        parameter.data.mul_(0.5)
    return model


def vit() -> nn.Module:
    """A ViT of six blocks of width 128 for 32x32 images, patches of 4x4."""
    transformer = vision.timm().models.VisionTransformer
    model: nn.Module = transformer(
        img_size=32, patch_size=4, embed_dim=128, depth=6, num_heads=4, num_classes=10
    )
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "residual-18": residual,
    "residual-18, width 8": lambda: residual(18, 8),
    "residual-18, width 32": lambda: residual(18, 32),
    "residual-6": lambda: residual(6),
    "residual-36": lambda: residual(36),
    "residual-18 with BN": lambda: residual(normalized=True),
    "ResNet-110 without BN": lambda: halved(build("resnet-110-nobn")),
    "ResNet-110": lambda: build("resnet-110"),
    "ResNet-20": lambda: build("resnet-20"),
    "WRN-28-2 without BN": lambda: halved(build("wrn-28-2-nobn")),
    "ViT": vit,
    "Swin": lambda: build("swin-cifar"),
}


@dataclass(frozen=True)
class Case:
    """One measurement."""

    model: str
    way: str
    D: int = 2
    r: float = 0.0
    B: int = 64

    @property
    def title(self) -> str:
        """For the progress bar."""
        return f"{self.model}, {self.way}, D={self.D}, r={self.r}, B={self.B}"


def nio(case: Case, steps: int) -> ni.NIO:
    """NIO with every setting that could end it early out of the way."""
    return ni.NIO(steps=steps, gamma=1.0, sub_batches=case.D, overlap=case.r, tolerance=0.0)


# A way of taking a step: the method for `optimize`, and its other arguments. Other methods are
# added here. The authors' way and a plain training step are no methods: see bench.py.
WAYS: dict[str, tuple[Callable[[Case, int], Any], dict[str, Any]]] = {
    "keep": (nio, {"engine": "keep"}),
    "stream": (nio, {"engine": "stream"}),
}
# Methods without sub-batches: a row a model. GradInit's steps are both kinds: gamma decides.
RIVALS: dict[str, tuple[Callable[[Case, int], Any], dict[str, Any]]] = {
    "GradInit": (lambda case, steps: ni.GradInit(steps=steps, gamma=1e9), {"engine": "keep"}),
    "GradInit, above its bound": (
        lambda case, steps: ni.GradInit(steps=steps, gamma=1e-9),
        {"engine": "keep"},
    ),
    "MetaInit": (lambda case, steps: ni.MetaInit(steps=steps), {"engine": "keep"}),
}
AUTHORS, TRAINING = "authors' way", "training step"

# the other models, each at a batch size that takes a few minutes
OTHERS = {
    "ResNet-110 without BN": 16,
    "ResNet-110": 16,
    "WRN-28-2 without BN": 16,
    "ViT": 32,
    "Swin": 64,
}
# networks that people have, see workloads.py, and their batch sizes
PEOPLES = {
    "ResNet-50, 64 pixels": 64,
    "ConvNeXt-atto, 64 pixels": 32,
    "EfficientNet-B0, 64 pixels": 32,
    "ViT-tiny, compute_loss": 32,
    "GPT-2, Hugging Face": 16,
    "LSTM, 2 layers": 32,
    "demo, 24 blocks": 64,
    "text GPT, 12 blocks": 32,
}
SPLITS = [(2, 0.6), (4, 0.2), (8, 0.0), (16, 0.0), (64, 0.0)]


def quick() -> list[Case]:
    """About three minutes: one network, and the smallest of the others."""
    main = "residual-18, width 8"
    return [
        Case(main, TRAINING, B=32),
        *(Case(main, w, D, r, 32) for D, r in [(2, 0.6), (8, 0.0)] for w in (*WAYS, AUTHORS)),
        Case("ResNet-20", "keep", 2, 0.6, 32),
        Case("ResNet-20", AUTHORS, 2, 0.6, 32),
        Case("ViT", "keep", 4, 0.2, 16),
    ]


def full() -> list[Case]:
    """Everything: D and r on the main network, then B, size, and the other models."""
    main = "residual-18"
    overlaps = [(2, 0.0), (2, 0.2), (8, 0.6)]
    cases = [Case(main, TRAINING)]
    cases += [Case(main, w, D, r) for (D, r), w in itertools.product(SPLITS + overlaps, WAYS)]
    cases += [Case(main, AUTHORS, D, r) for D, r in SPLITS if D <= 16]
    cases += [Case(main, way, 1) for way in RIVALS]
    cases += [Case(main, w, 4, 0.2, B) for B, w in itertools.product((16, 32, 128), WAYS)]
    sizes = ("residual-18, width 8", "residual-18, width 32", "residual-6", "residual-36")
    cases += [Case(m, w, 4, 0.2) for m, w in itertools.product(sizes, WAYS)]
    normalized = "residual-18 with BN"
    cases += [Case(normalized, TRAINING)]
    cases += [Case(normalized, way, 2, 0.6) for way in (*WAYS, AUTHORS)]
    cases += [Case(normalized, way, 8) for way in (*WAYS, AUTHORS)]
    cases += [Case(normalized, "keep", 16)]
    for D, way in ((8, "keep"), (16, "keep"), (8, "stream")):
        cases += [Case(model, way, D, B=B) for model, B in PEOPLES.items()]
    cases += [Case(model, AUTHORS, 2, B=B) for model, B in PEOPLES.items()]
    cases += [Case(model, TRAINING, B=B) for model, B in PEOPLES.items()]
    for model, B in OTHERS.items():
        cases += [Case(model, TRAINING, B=B)]
        splits = [(2, 0.6), (4, 0.2), (16 if B > 16 else 8, 0.0)]
        cases += [Case(model, w, D, r, B) for (D, r), w in itertools.product(splits, WAYS)]
        cases += [Case(model, AUTHORS, 2, 0.6, B)]
        if model in ("ViT", "Swin"):
            cases += [Case(model, way, 1, B=B) for way in RIVALS]
    return cases
