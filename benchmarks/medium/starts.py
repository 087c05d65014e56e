"""The networks and starts of the medium scale: see :mod:`benchmarks.medium.run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import SGD

import neuroinit as ni
from neuroinit.experiments.models.densenet import DenseNet
from neuroinit.experiments.models.resnet import ResNet
from neuroinit.experiments.models.wide_resnet import WideResNet

BATCH, RATE = 128, 0.1
NIO_STEPS, GRADINIT_STEPS, METAINIT_STEPS = 100, 100, 30  # fewer than in the papers, for time alone
SMOOTHED = 30  # steps of one number of a loss curve
NORMS = ("w/ BN", "w/o BN")


def resnet() -> nn.Module:
    """Three blocks of two convolutions, 8, 16 and 32 channels."""
    return halved(model := ResNet(8, 10, (8, 16, 32)), model.conv)


def densenet() -> nn.Module:
    """Two layers a block, growth 4."""
    return halved(model := DenseNet(10, 10, bc=False, growth=4), model.body[0])


def wide_resnet() -> nn.Module:
    """Three pre-activation blocks, twice as wide as the ResNet."""
    return halved(model := WideResNet(10, 1, 10), model.conv)


def halved(model: nn.Module, first: nn.Module) -> nn.Module:
    """With stride 2 in its first convolution: the stages see 8x8, 4x4 and 2x2 pixels."""
    first.stride = (2, 2)
    return model


NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {  # and its name in the presets
    "ResNet-8": (resnet, "resnet110"),
    "DenseNet-10": (densenet, "densenet100"),
    "WRN-10-1": (wide_resnet, "wrn28-10"),
    "ResNet-8, long": (resnet, "resnet110"),
    "WRN-10-1, long": (wide_resnet, "wrn28-10"),
    "DenseNet-10, long": (densenet, "densenet100"),
}
EPOCHS = {
    network: 30 if "long" in network else 5 if network == "ResNet-8" else 3 for network in NETWORKS
}


@dataclass(frozen=True)
class Job:
    """One training."""

    network: str
    norm: str
    start: str
    seed: int

    @property
    def preset(self) -> str:
        """The paper's settings for the network that this one stands for."""
        return f"cifar10-{NETWORKS[self.network][1]}" + ("-nobn" if self.norm == "w/o BN" else "")


def sgd(parameters: Any) -> SGD:
    """The optimizer of all trainings."""
    return SGD(parameters, lr=RATE, momentum=0.9, weight_decay=5e-4)


Start = Callable[[nn.Module, Any, Job], Any]


def learned(method: Callable[[Job], ni.Initialization]) -> Start:
    """A method that learns scales, from the settings of a job."""

    def start(model: nn.Module, batches: Any, job: Job) -> Any:
        result = ni.optimize(model, batches, method=method(job), progress=False)
        result.apply_(model)
        return result

    return start


def split_batch(sub_batches: int, overlap: float) -> Start:
    """The authors' form with other sub-batches: the ablation of Table 3."""
    return learned(lambda job: _reference(job, sub_batches=sub_batches, overlap=overlap))


def _reference(job: Job, **changes: Any) -> ni.NIO:
    return ni.NIO.reference(job.preset, steps=NIO_STEPS, **changes)


def _gradinit(job: Job) -> ni.GradInit:
    known = job.preset if job.preset in ni.GRADINIT_PRESETS else "cifar10-resnet110-nobn"
    return ni.GradInit.preset(known, steps=GRADINIT_STEPS)


# all of them start from Kaiming's weights
STARTS: dict[str, Start] = {
    "Kaiming": lambda model, batches, job: None,
    "Warmup": lambda model, batches, job: None,
    "LSUV": lambda model, batches, job: ni.lsuv_(model, batches, progress=False),
    "MetaInit": learned(lambda job: ni.MetaInit(steps=METAINIT_STEPS)),
    "GradInit": learned(_gradinit),
    "NIO.paper": learned(lambda job: ni.NIO.paper(job.preset, steps=NIO_STEPS)),
    "NIO.reference": learned(_reference),
    "NIO()": learned(lambda job: ni.NIO()),
    "nio_(optimizer=)": lambda model, batches, job: ni.nio_(
        model, batches, optimizer=sgd, progress=False
    ),
    "auto_": lambda model, batches, job: ni.auto_(model, batches, optimizer=sgd, progress=False),
}
SPLITS: dict[str, Start] = {
    f"D={d}, r={r:g}": split_batch(d, r) for d in (2, 3, 4) for r in (0.0, 0.2, 0.4, 0.6)
} | {"sample-wise": split_batch(BATCH, 0.0)}
# Appendix B prints 0.3 for a WRN without BatchNorm, but lists no rate above 0.03 among those tried
TAU = "NIO.paper, tau=0.03"
OTHER_TAU: dict[str, Start] = {
    TAU: learned(lambda job: ni.NIO.paper(job.preset, steps=NIO_STEPS, lr=0.03))
}
OURS = ("NIO()", "nio_(optimizer=)", "auto_")  # they change with our defaults
SEEDS = 5


def jobs() -> list[Job]:
    """All jobs, in the order in which they run: an interrupted run is balanced."""
    first = [Job("ResNet-8", n, start, k) for k in range(SEEDS) for n in NORMS for start in STARTS]
    others = [
        Job(network, norm, start, seed)
        for seed in range(SEEDS)
        for network in ("DenseNet-10", "WRN-10-1")
        for norm in NORMS
        for start in STARTS
    ]
    long = [
        Job("ResNet-8, long", norm, start, seed)
        for seed in range(SEEDS)
        for norm in reversed(NORMS)
        for start in STARTS
    ]
    splits = [Job("ResNet-8", NORMS[0], split, seed) for seed in range(3) for split in SPLITS]
    slower = [Job("WRN-10-1", NORMS[1], TAU, seed) for seed in range(SEEDS)]
    return first + others + long + splits + slower + _lasting() + _longer()


def _lasting() -> list[Job]:
    """Do the gains of three epochs without BatchNorm last?"""
    return [
        Job("WRN-10-1, long", NORMS[1], start, seed)
        for seed in range(SEEDS)
        for start in ("Kaiming", "nio_(optimizer=)", TAU)
    ]


def _longer() -> list[Job]:
    """Every start of the other two networks, seed by seed."""
    return [
        Job(network, norm, start, seed)
        for seed in range(SEEDS)
        for network in ("WRN-10-1, long", "DenseNet-10, long")
        for norm in reversed(NORMS)
        for start in STARTS
    ]
