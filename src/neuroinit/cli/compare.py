"""``neuroinit compare``."""

from __future__ import annotations

import json as json_module
from itertools import islice
from pathlib import Path

from torch import nn

from neuroinit.choose.compare import compare as compare_initializations
from neuroinit.common.checks import check_choice, check_count
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.models import build, check_name
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.device import device
from neuroinit.experiments.training.folder.files import without_nan
from neuroinit.experiments.training.initializations import SCHEMES, draw_weights_, scheme_or_method
from neuroinit.experiments.training.train import train_model


def compare(
    model: str = "resnet-20-nobn",
    methods: tuple[str, ...] = ("default", "metainit:steps=40", "gradinit:steps=40", "nio"),
    base: str = "kaiming",
    data: str = "digits",
    batch_size: int = 64,
    batches: int = 41,
    seeds: int = 3,
    epochs: int = 0,
    lr: float = 0.1,
    clip: float = 0.0,
    train_images: int | None = None,
    image_size: int | None = None,
    root: Path = Path("data"),
    download: bool = False,
    json: bool = False,
) -> None:
    """Compare initializations of a model: gradients, cost and, with `--epochs`, test accuracy.

    Example: `neuroinit compare --model resnet-20-nobn --methods default gradinit nio --epochs 2`

    Args:
        model: A model such as `resnet-20-nobn`, `torchvision:NAME`, `timm:NAME`, or your own as
            `FILE.py:FUNCTION`.
        methods: Initializations: `default` (the weights of `--base`), `xavier`, `nio` and others,
            with settings as in `nio:steps=20`.
        base: The weights from which all methods start: `kaiming`, `default` for the model as built,
            or another scheme.
        data: `digits`, `cifar10`, `cifar100` or `folder:PATH`.
        batch_size: Images per step, of the methods and of training.
        batches: Number of batches. Gradients are measured on the first; the methods use the others.
        seeds: Number of seeds.
        epochs: Train for this many epochs after each initialization, with SGD, a cosine schedule
            and the default augmentation of `neuroinit train`. By default nothing is trained.
        lr: Learning rate of that training.
        clip: Largest norm of the gradient in that training; 0 for no clipping.
        train_images: Use only this many training images. By default all.
        image_size: Resize images to this height and width. By default they keep their size; images
            in a folder get the shorter edge of the first one.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        json: Print the records as JSON.
    """
    named = {method: scheme_or_method(method) for method in methods}
    check_choice("base", base, tuple(SCHEMES))
    for name, value, least in (("batches", batches, 2), ("seeds", seeds, 1), ("epochs", epochs, 0)):
        check_count(name, value, least)
    check_name(model)
    images = load(data, root, download, train_images, None, image_size)
    images.steps_per_epoch(batch_size)
    config = Config(data=data, epochs=max(1, epochs), batch_size=batch_size, lr=lr, clip=clip)

    def make_model() -> nn.Module:
        network = build(model, images.classes)
        draw_weights_(network, base)
        return network.to(device())

    found = compare_initializations(
        make_model,
        list(islice(images.unaugmented(batch_size, 0), batches)),
        named,
        range(seeds),
        train=(lambda network: train_model(network, config, images).accuracy) if epochs else None,
        show=not json,
    )
    if json:
        print(json_module.dumps([without_nan(dict(record)) for record in found], indent=1))
