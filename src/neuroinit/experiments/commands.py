"""Commands of ``neuroinit`` that run experiments."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from neuroinit.choose.compare import compare as compare_
from neuroinit.common.checks import check_choice, check_count
from neuroinit.common.errors import needs_extra
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.models import build, check_name
from neuroinit.experiments.paper import grid
from neuroinit.experiments.paper.reproduce import reproduce as reproduce_
from neuroinit.experiments.training import checkpoint
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.run import device
from neuroinit.experiments.training.starts import RULES, alone, learned, rule_, start_
from neuroinit.experiments.training.train import train as train_
from neuroinit.experiments.training.train import train_model


class Given(Config):
    """What was typed: checked when the command runs, for an error like all others."""

    def __post_init__(self) -> None:
        pass


def train(
    config: Given,
    out: Path = Path("run"),
    root: Path = Path("data"),
    download: bool = False,
    json: bool = False,
) -> None:
    """Train a model from an initialization of your choice.

    A run that was interrupted goes on where it was; one that is done is shown again.
    Example: `neuroinit train --model resnet-20 --data digits --method nio --epochs 5 --out run`

    Args:
        config: What to compute.
        out: Folder of the run: configuration, metrics, checkpoint, trained model, result.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        json: Print the result as JSON, for machines.
    """
    outcome = train_(Config.from_json(config.to_json()), out, root, download)
    if json:
        print(json_module.dumps({**asdict(outcome), "folder": str(out)}))
        return
    loss = "not finite" if outcome.train_loss is None else f"{outcome.train_loss:.3f}"
    print(
        f"{config.model} from {config.method}: test accuracy {100 * outcome.accuracy:.1f} %, "
        f"training loss {loss}, {outcome.steps} steps in {outcome.train_seconds:.0f} s "
        f"(data {100 * outcome.data_share:.1f} %), initialization {outcome.init_seconds:.0f} s. "
        f"Run: {out}"
    )


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

    The scales and the history stand beside it as JSON, and a report for a browser. Load it into a
    model with as many classes as the data has:
    `model.load_state_dict(safetensors.torch.load_file("init.safetensors"))`. A step of
    NIO takes as long as several of training: with large images on a CPU, a smaller `--batch-size`,
    or fewer steps as in `--method default+nio:steps=20`, saves minutes.
    Example: `neuroinit init --model timm:resnet18 --data folder:imagenet --image-size 224`

    Args:
        model: A name of the registry such as `resnet-110-nobn`, `torchvision:NAME`, `timm:NAME`.
        data: `digits`, `cifar10`, `cifar100` or `folder:PATH`.
        out: Where to write the checkpoint, a name that ends with `.safetensors`.
        method: `default+nio` (NIO on the model as built), `kaiming+nio:steps=20`, `kaiming`, ...
        batch_size: Images a step.
        seed: Of the weights and the data.
        image_size: Edge that images get; by default as they are, in a folder that of the first.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        json: Print where the files are as JSON, for machines.
    """
    if not out.parent.is_dir():
        raise ValueError(f"`--out {out}`: there is no folder `{out.parent}`.")
    if out.suffix != ".safetensors" or out.is_dir():
        raise ValueError(f"`--out {out}`: name a file that ends with `.safetensors`.")
    chosen = learned(method)
    check_name(model)
    with needs_extra("experiments"):
        import matplotlib  # noqa: F401  (for the report: tell that it is missing before the work)
    images = load(data, root, download, image_size=image_size)
    images.steps(batch_size)
    torch.manual_seed(seed)
    network = build(model, images.classes).to(device())
    if chosen is not None and chosen.steps:
        doing = f"up to {chosen.steps} steps of {type(chosen).__name__}"
        print(f"{model}: {doing}, {batch_size} images each", file=sys.stderr, flush=True)
    result = start_(network, method, images.samples(batch_size, seed))
    notes = {"model": model, "classes": images.classes, "method": method, "seed": seed}
    files = {"checkpoint": str(out)}
    beside = {"scales": str(out.with_suffix(".json")), "report": str(out.with_suffix(".html"))}
    for old in (str(out), *beside.values()):  # of an earlier start
        Path(old).unlink(missing_ok=True)
    if result is not None:
        files |= beside
        result.save(files["scales"])
        result.report(files["report"], f"{model} from {method}")
    checkpoint.write_tensors(out, network.state_dict(), notes)  # last: where it is, all is
    if json:
        print(json_module.dumps(files))
        return
    print("\n".join([*([str(result)] if result else []), *map(": ".join, files.items())]))


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
        model: A name of the registry, `torchvision:NAME` or `timm:NAME`.
        methods: Rules and methods, with settings as in `nio:steps=20`; `default` is the base alone.
        base: The rule that all start from; `default` for the model as built.
        data: `digits`, `cifar10`, `cifar100` or `folder:PATH`.
        batch_size: Images a step, of a method and of training.
        batches: How many batches are used; the first is for measuring, the methods get the others.
        seeds: Number of seeds.
        epochs: Train each start for so many epochs with SGD and a cosine schedule, with
            augmentation as `train` has for the data by default.
        lr: Learning rate of that.
        clip: Largest norm of the gradient; 0 for no clipping.
        train_images: Use only this many training images.
        image_size: Edge that images get; by default as they are, in a folder that of the first.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        json: Print the records as JSON, for machines.
    """
    named = {method: alone(method) for method in methods}
    check_choice("base", base, tuple(RULES))
    for name, value, least in (("batches", batches, 2), ("seeds", seeds, 1), ("epochs", epochs, 0)):
        check_count(name, value, least)
    check_name(model)
    images = load(data, root, download, train_images, None, image_size)
    images.steps(batch_size)
    config = Config(data=data, epochs=max(1, epochs), batch_size=batch_size, lr=lr, clip=clip)

    def factory() -> nn.Module:
        network = build(model, images.classes)
        rule_(network, base)
        return network.to(device())

    found = compare_(
        factory,
        list(islice(images.samples(batch_size, 0), batches)),
        named,
        range(seeds),
        train=(lambda network: train_model(network, config, images).accuracy) if epochs else None,
        show=not json,
    )
    if json:
        print(json_module.dumps([checkpoint.without_nan(dict(r)) for r in found], indent=1))


def reproduce(
    name: Literal["table1", "table2", "table3", "table4", "table5", "figure2", "figure3"],
    /,
    scale: Literal["paper", "small", "smoke"] = "small",
    out: Path = Path("runs"),
    data: str | None = None,
    root: Path = Path("data"),
    download: bool = False,
    seeds: tuple[int, ...] = (),
    only: tuple[str, ...] = (),
    training: bool = True,
    init_batch_size: int | None = None,
    json: bool = False,
) -> None:
    """Reproduce a table or a figure of the paper: run what is missing, then write it.

    Can be interrupted at any time; the same command goes on. Several processes can share `--out`:
    each takes the next run that no other is at. A part of a table has a file name of its own.
    Example: `neuroinit reproduce table1 --scale small --download`

    Args:
        name: What to reproduce.
        scale: The paper's size (GPUs), a size for a laptop, or a minute's proof that it runs.
        out: Folder of the runs, tables and figures.
        data: Other data than the paper's, for example `folder:PATH` for ImageNet.
        root: Where CIFAR is.
        download: Fetch CIFAR if it is not there.
        seeds: Only these seeds.
        only: Only these rows and columns, by their names, as in `--only "w/o BN" Kaiming GradInit`.
        training: `--no-training` measures only what needs none: the costs of tables 3 to 5.
        init_batch_size: Images a step of the methods, instead of the paper's number.
        json: Print where the files are as JSON, for machines.
    """
    place = grid.Place(out, root, download, lambda line: print(line, file=sys.stderr, flush=True))
    paths = reproduce_(name, scale, place, data, seeds, training, only, init_batch_size)
    if json:
        print(json_module.dumps({"files": [str(path) for path in paths]}))
        return
    for path in paths:
        if path.suffix == ".md":
            print(path.read_text())
        print(path)


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "init": init,
    "compare": compare,
    "reproduce": reproduce,
}
