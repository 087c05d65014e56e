"""The one place that imports torchvision and timm."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch

from neuroinit.common.errors import needs_extra

_LIBRARIES: list[Any] = []  # a schema lives as long as the library object that declared it


def torchvision() -> ModuleType:
    """Import torchvision, also where its compiled operators are missing.

    Next to a torch that it was not built for, torchvision does not find its compiled operators,
    and then fails to import because it describes the shapes of two of them. Declaring those two is
    enough for all but the operators themselves (non-maximum suppression, for detectors only).
    """
    with needs_extra("experiments"):
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error) or _LIBRARIES:
                raise
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)
        return importlib.import_module("torchvision")


def timm() -> ModuleType:
    """Import timm, after the torchvision that it imports."""
    torchvision()
    with needs_extra("experiments"):
        return importlib.import_module("timm")


def transforms() -> ModuleType:
    """torchvision's transforms, second version."""
    torchvision()
    return importlib.import_module("torchvision.transforms.v2")
