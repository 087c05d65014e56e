"""Settings of NIO by name: the paper's Appendix B, and those of ``NIO.paper``, ``NIO.reference``.

All CIFAR runs use batches of 128 samples and go once through the training set (391 steps); the
ImageNet runs use batches of 64. On CIFAR-100 gamma is twice that of CIFAR-10, on ImageNet three
times (the authors' released ResNet-50 configuration has 10, which we take; Swin-T: 3 x 5).
"""

from __future__ import annotations

from torch import Tensor, nn

from neuroinit.common.checks import check_choice
from neuroinit.methods.nio.fields import NIOFields
from neuroinit.methods.nio.objectives import (
    cosine_and_norm,
    distinct_cosine_and_sum,
    largest_norm,
    mean_norm,
)
from neuroinit.methods.nio.rules import BoundedAscent
from neuroinit.methods.updates import Plain, TwoMomentAdam

# name: tau, r, gamma on CIFAR-10
_CIFAR = {
    "resnet110": (0.1, 0.6, 5.0),
    "densenet100": (0.15, 0.6, 3.0),
    "wrn28-10": (0.25, 0.7, 2.0),
    "resnet110-nobn": (0.015, 0.7, 4.0),
    "densenet100-nobn": (0.015, 0.75, 3.5),
    # as printed; tau is probably 0.03, the largest that was tried (docs/how-it-works/deviations.md)
    "wrn28-10-nobn": (0.3, 0.8, 2.0),
}


def _presets() -> dict[str, NIOFields]:
    table: dict[str, NIOFields] = {}
    for data, factor in (("cifar10", 1.0), ("cifar100", 2.0)):
        for model, (lr, overlap, gamma) in _CIFAR.items():
            table[f"{data}-{model}"] = {
                "steps": 391,
                "lr": lr,
                "gamma": factor * gamma,
                "sub_batches": 2,
                "overlap": overlap,
            }
    for model, gamma in (("resnet50", 10.0), ("swin-t", 15.0)):
        table[f"imagenet-{model}"] = {
            "steps": 100,
            "lr": 0.003,
            "gamma": gamma,
            "sub_batches": 4,
            "overlap": 0.2,
        }
    return table


PRESETS = _presets()


def released_layers(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Weights and biases of Conv2d, Linear and LayerNorm, as in the authors' released code."""
    return isinstance(module, (nn.Conv2d, nn.Linear, nn.LayerNorm)) and key in ("weight", "bias")


PAPER: NIOFields = {
    "rule": BoundedAscent(cosine_and_norm, largest_norm, Plain()),
    "split": "paper",
    "tolerance": 0.0,
    **PRESETS["cifar10-resnet110"],
}

REFERENCE: NIOFields = {
    "rule": BoundedAscent(distinct_cosine_and_sum, mean_norm, TwoMomentAdam()),
    "split": "reference",
    "batch_stats": "batch",
    "gradients_of": released_layers,
    "include": ("*weight*", "*bias*"),
    "min_bias_scale": 0.0,
    "tolerance": 0.0,
    **PRESETS["imagenet-resnet50"],
}


def preset_fields(name: str | None) -> NIOFields:
    """The fields of a preset; none without a name."""
    if name is None:
        return {}
    check_choice("preset", name, tuple(PRESETS))
    return PRESETS[name]
