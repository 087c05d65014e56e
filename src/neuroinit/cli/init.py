"""``neuroinit init``."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path

import torch

from neuroinit.cli.outputs import check_folder
from neuroinit.common.errors import needs_extra
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.models import build, check_name
from neuroinit.experiments.training.device import device
from neuroinit.experiments.training.folder.files import write_tensors
from neuroinit.experiments.training.initializations import initialize_, learned_method


def init(
    model: str,
    data: str,
    out: Path = Path("init.safetensors"),
    method: str = "default+nio",
    batch_size: int = 64,
    seed: int = 0,
    image_size: int | None = None,
    root: Path = Path("data"),
    download: bool = False,
    json: bool = False,
) -> None:
    """Optimize the initialization of a model and write it as a checkpoint.

    Beside the checkpoint, a method such as NIO writes scales and history as JSON, and a report for
    a browser. Load the checkpoint into a model with as many classes as the data has:
    `model.load_state_dict(safetensors.torch.load_file("init.safetensors"))`

    A step of NIO takes about as long as a training step, and several times as long with a number
    for `gamma`. For large images on a CPU, use a smaller `--batch-size`.

    Example: `neuroinit init --model timm:resnet18 --data folder:imagenet --image-size 224`

    Args:
        model: A model such as `resnet-110-nobn`, `torchvision:NAME`, `timm:NAME`, or your own as
            `FILE.py:FUNCTION`. The function gets the number of classes if it has an argument
            `classes` or `num_classes`.
        data: `digits`, `cifar10`, `cifar100` or `folder:PATH`.
        out: File of the checkpoint; its name ends with `.safetensors`.
        method: The initialization: `default+nio` (NIO on the model as built), `kaiming`, `nio` (on
            top of Kaiming) and others, with settings as in `default+nio:steps=20,gamma=2.0`.
        batch_size: Images per step.
        seed: Seed of the weights and of the order of the data.
        image_size: Resize images to this height and width. By default they keep their size; images
            in a folder get the shorter edge of the first one.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        json: Print the names of the files as JSON.
    """
    _check(out)
    chosen = learned_method(method)
    check_name(model)
    with needs_extra("experiments"):
        import matplotlib  # noqa: F401  (for the report: tell that it is missing before the work)
    images = load(data, root, download, image_size=image_size)
    images.steps_per_epoch(batch_size)
    torch.manual_seed(seed)
    network = build(model, images.classes).to(device())
    if chosen is not None and chosen.steps:
        steps = f"up to {chosen.steps} steps of {type(chosen).__name__}"
        print(f"{model}: {steps}, {batch_size} images each", file=sys.stderr, flush=True)
    result = initialize_(network, method, images.unaugmented(batch_size, seed))
    scales, report = out.with_suffix(".json"), out.with_suffix(".html")
    for old in (out, scales, report):  # of an earlier initialization
        old.unlink(missing_ok=True)
    files = {"checkpoint": str(out)}
    if result is not None:
        result.save(scales)
        result.report(report, f"{model} from {method}")
        files |= {"scales": str(scales), "report": str(report)}
    notes = {"model": model, "classes": images.classes, "method": method, "seed": seed}
    write_tensors(out, network.state_dict(), notes)  # last: if it is there, the others are
    if json:
        print(json_module.dumps(files))
    else:
        print("\n".join([*([str(result)] if result else []), *map(": ".join, files.items())]))


def _check(out: Path) -> None:
    check_folder(out)
    if out.suffix != ".safetensors" or out.is_dir():
        raise ValueError(f"`--out {out}`: name a file that ends with `.safetensors`.")
