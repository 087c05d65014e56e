"""``neuroinit train``."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path

from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.train import train as train_in_folder


class TypedConfig(Config):
    """The configuration as typed. It is not checked here, so that a wrong value is an error of the
    command in one line, and not a usage error of the parser."""

    def __post_init__(self) -> None:
        pass


def train(
    config: TypedConfig,
    out: Path = Path("run"),
    root: Path = Path("data"),
    download: bool = False,
    json: bool = False,
) -> None:
    """Train a model from an initialization of your choice.

    The same command continues a run that was interrupted. For a run that is complete, it prints the
    result again.

    Example: `neuroinit train --model resnet-20 --data digits --method nio --epochs 5 --out run`

    Args:
        config: Model, data, initialization and training.
        out: Folder of the run: configuration, metrics, checkpoint, trained model and result.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        json: Print the result as JSON.
    """
    outcome = train_in_folder(Config.from_json(config.to_json()), out, root, download)
    if json:
        print(json_module.dumps({**asdict(outcome), "folder": str(out)}))
        return
    loss = "not finite" if outcome.train_loss is None else f"{outcome.train_loss:.3f}"
    print(
        f"{config.model} from {config.method}: test accuracy {100 * outcome.accuracy:.1f} %, "
        f"training loss {loss}, {outcome.steps} steps in {outcome.train_seconds:.0f} s "
        f"(waiting for data {100 * outcome.data_share:.1f} %), "
        f"initialization {outcome.init_seconds:.0f} s. Run: {out}"
    )
