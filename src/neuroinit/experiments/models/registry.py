"""Build a model by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from neuroinit.experiments import vision
from neuroinit.experiments.models.densenet import DenseNet
from neuroinit.experiments.models.fixup import FixupResNet, FixupResNet50
from neuroinit.experiments.models.from_file import model_from_file
from neuroinit.experiments.models.resnet import ResNet
from neuroinit.experiments.models.wide_resnet import WideResNet
from neuroinit.experiments.models.without_batchnorm import without_batchnorm

Maker = Callable[[int], nn.Module]  # makes a model for a number of classes
NO_BATCHNORM = "-nobn"
AUXILIARY = ("googlenet", "inception_v3")  # of torchvision; built without their auxiliary outputs
OTHERS = "`torchvision:NAME`, `timm:NAME`, or your own as `FILE.py:FUNCTION`"


def _swin() -> Maker:
    """A Swin for 32x32 images: patches and windows of 4x4, three stages of two blocks."""
    models = vision.torchvision().models  # first: older versions cannot be imported on meta
    return lambda classes: models.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=48,
        depths=[2, 2, 2],
        num_heads=[2, 4, 8],
        window_size=[4, 4],
        stochastic_depth_prob=0.0,
        num_classes=classes,
    )


def _torchvision(name: str) -> Maker:
    models = vision.torchvision().models
    if name not in models.list_models(module=models):
        raise ValueError(f"torchvision has no classifier `{name}`: see torchvision.models.")
    single = {"aux_logits": False, "init_weights": True} if name in AUXILIARY else {}
    return lambda classes: models.get_model(name, weights=None, num_classes=classes, **single)


def _timm(name: str) -> Maker:
    timm = vision.timm()
    if not timm.is_model(name):
        raise ValueError(f"timm has no model `{name}`: see timm.list_models().")
    return lambda classes: timm.create_model(name, pretrained=False, num_classes=classes)


# regular expression of a name -> function that takes its groups and returns a maker
FAMILIES: dict[str, Callable[..., Maker]] = {
    r"resnet-(\d+)": lambda depth: partial(ResNet, int(depth)),
    r"densenet-(\d+)": lambda depth: partial(DenseNet, int(depth), bc=False),
    r"densenet-bc-(\d+)": lambda depth: partial(DenseNet, int(depth), bc=True),
    r"wrn-(\d+)-(\d+)": lambda depth, k: partial(WideResNet, int(depth), int(k)),
    r"fixup-resnet-(\d+)": lambda depth: partial(FixupResNet, int(depth)),
    r"fixup-resnet50": lambda: FixupResNet50,
    r"swin-cifar": _swin,
    r"(.+\.py):(\w+)": model_from_file,
    r"torchvision:(\w+)": _torchvision,
    r"timm:([\w.]+)": _timm,
}


def names() -> list[str]:
    """Names of the models of the paper.

    Other depths and widths, and all models of torchvision and timm, can be built, too.

    Example:
        >>> "resnet-110-nobn" in names()
        True
    """
    plain = [f"resnet-{depth}" for depth in (20, 32, 44, 56, 110)]
    plain += ["densenet-40", "densenet-bc-100", "wrn-28-10"]
    fixup = [f"fixup-{name}" for name in plain if name.startswith("resnet")]
    big = ["torchvision:resnet50", "timm:swin_tiny_patch4_window7_224"]
    return [
        *plain,
        *(name + NO_BATCHNORM for name in plain),
        *fixup,
        "fixup-resnet50",
        "swin-cifar",
        *big,
    ]


def build(name: str, classes: int = 10) -> nn.Module:
    """Build a model for RGB images by its name.

    Args:
        name: For example ``resnet-20``, ``densenet-bc-100``, ``wrn-28-10`` or ``fixup-resnet-110``;
            ``torchvision:NAME`` or ``timm:NAME``; or ``FILE.py:FUNCTION`` for a model of your own
            (see :mod:`~neuroinit.experiments.models.from_file`). With ``-nobn`` at the end, every
            BatchNorm is replaced by a learnable bias, initially zero.
        classes: Number of classes.

    Raises:
        ValueError: There is no such model; the message lists the names.

    Example:
        >>> sum(p.numel() for p in build("resnet-20").parameters())
        269722
    """
    if classes < 1:
        raise ValueError(f"`classes` should be at least 1. Found `classes={classes}`.")
    model = _maker(name)(classes)
    return without_batchnorm(model) if name.endswith(NO_BATCHNORM) else model


def check_name(name: str) -> None:
    """Raise the error of :func:`build` for a wrong name, without building the model.

    It takes almost no time, so a wrong name is reported before data is loaded. For models of
    torchvision and timm and from files, ``-nobn`` is checked only when they are built.
    """
    _maker(name)
    if ":" not in name:
        with torch.device("meta"):
            build(name)


def _maker(name: str) -> Maker:
    """The function that makes the model of this name, with its BatchNorm."""
    for pattern, family in FAMILIES.items():
        match = re.fullmatch(pattern, name.removesuffix(NO_BATCHNORM))
        if match:
            return family(*match.groups())
    raise ValueError(f"There is no model `{name}`. Choose one of {', '.join(names())}; {OTHERS}.")
