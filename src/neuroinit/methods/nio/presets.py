"""The settings of the paper's Appendix B, by name.

All CIFAR runs use batches of 128 samples and go once through the training set (391 steps); the
ImageNet runs use batches of 64. On CIFAR-100 gamma is twice that of CIFAR-10, on ImageNet three
times (the authors' released ResNet-50 configuration has 10, which we take; Swin-T: 3 x 5).
"""

from __future__ import annotations

from typing import Any

# name: tau, r, gamma on CIFAR-10
_CIFAR = {
    "resnet110": (0.1, 0.6, 5.0),
    "densenet100": (0.15, 0.6, 3.0),
    "wrn28-10": (0.25, 0.7, 2.0),
    "resnet110-nobn": (0.015, 0.7, 4.0),
    "densenet100-nobn": (0.015, 0.75, 3.5),
    "wrn28-10-nobn": (0.3, 0.8, 2.0),
}


def _presets() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
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
