"""The only module that imports torchvision and timm; the others use its functions."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from neuroinit.common.errors import needs_extra

_DECLARED: list[torch.library.Library] = []  # torch drops an operator with its library object


def torchvision() -> ModuleType:
    """Import torchvision, also if its compiled operators are missing.

    A torchvision that was built for another torch version does not find its compiled operators. Its
    import then fails, because it registers shape functions for ``nms`` and ``qnms``, which do not
    exist. We declare these two operators and import again. Everything works then except the
    operators themselves (non-maximum suppression, which only detection models use).
    """
    with needs_extra("experiments"):
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error) or _DECLARED:
                raise
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]  # torch
        for name in ("nms", "qnms"):
            signature = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(signature)  # type: ignore[no-untyped-call]  # torch
        _DECLARED.append(library)
        return importlib.import_module("torchvision")


def timm() -> ModuleType:
    """Import timm, which itself imports torchvision."""
    torchvision()
    with needs_extra("experiments"):
        return importlib.import_module("timm")


def transforms() -> ModuleType:
    """Import ``torchvision.transforms.v2``."""
    torchvision()
    return importlib.import_module("torchvision.transforms.v2")
