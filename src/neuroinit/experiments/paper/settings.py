"""The paper's tables as grids of runs, at three sizes.

``paper`` is Appendix B. ``small`` asks the same of ResNet-20 and a small Swin on a part of
CIFAR-10, in about two hours of two cores; ``smoke`` shows in a minute that everything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neuroinit.experiments.data.augment import Augmentation
from neuroinit.experiments.training.config import Config
from neuroinit.methods.gradinit import GRADINIT_PRESETS

WITH, WITHOUT = "w/ BN", "w/o BN"
OURS, AUTHORS = "NIO (ours)", "NIO (authors)"  # our defaults, and the authors' released code


@dataclass(frozen=True)
class Cell:
    """One run of a table: where it stands, and what it computes."""

    group: str
    row: str
    column: str
    config: Config

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it stands."""
        return self.group, self.row, self.column


@dataclass(frozen=True)
class Scale:
    """A size for all experiments.

    Args:
        seeds: How many.
        cifar: Configuration for the convolutional networks of Tables 1, 2 and 4 and Figure 2.
        models: Column of the table -> (model, name in the authors' settings).
        imagenet: Configuration for Table 3.
        swin: Configuration for Table 5, with warmup.
        nio: Settings of NIO that replace those of the paper.
        steps: Steps of MetaInit and GradInit; ``None`` for their papers'.
        splits: The settings (D, r) of Table 4.
        figure3: Network of Figure 3.
        batches: Batches of its panels (b) and (d).
        samples: Images of each of them.
    """

    seeds: int
    cifar: Config
    models: dict[str, tuple[str, str]]
    imagenet: Config
    swin: Config
    nio: dict[str, Any]
    steps: Mapping[str, int | None]
    splits: tuple[tuple[int, float], ...]
    figure3: str
    batches: int
    samples: int


_STANDARD = Augmentation(crop=4, flip=True, cutout=16)
_PAPER = Config(data="cifar10", epochs=500, augmentation=_STANDARD)
_SMALL = replace(_PAPER, epochs=4, train_images=4000, test_images=1000, init_batch_size=64)
_SMOKE = Config(
    model="resnet-8",
    epochs=1,
    batch_size=32,
    train_images=128,
    test_images=64,
    augmentation=Augmentation(crop=1, flip=True, cutout=2),
)
_SWIN: dict[str, Any] = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.05, "clip": 5.0}
_MIXED = Augmentation(crop=0, flip=True, randaugment=True, mixup=0.8)
_IMAGENET_STEPS = {"metainit": 1000, "gradinit": 2000}  # the footnote of Table 3
_SPLITS = tuple((d, r) for d in (2, 3, 4) for r in (0.0, 0.2, 0.4, 0.6))

SCALES: dict[str, Scale] = {
    "paper": Scale(
        seeds=4,
        cifar=_PAPER,
        models={
            "ResNet-110": ("resnet-110", "resnet110"),
            "DenseNet-100": ("densenet-bc-100", "densenet100"),
            "WRN-28-10": ("wrn-28-10", "wrn28-10"),
        },
        imagenet=Config(
            model="torchvision:resnet50",
            data="folder:imagenet",
            epochs=100,
            batch_size=256,
            schedule="step",
            image_size=224,
            augmentation=Augmentation(crop=0, flip=True),
            init_batch_size=64,
        ),
        swin=Config(
            model="timm:swin_tiny_patch4_window7_224",
            data="folder:imagenet",
            epochs=300,
            batch_size=1024,
            warmup_epochs=20.0,
            label_smoothing=0.1,
            image_size=224,
            augmentation=_MIXED,
            init_batch_size=64,
            **_SWIN,
        ),
        nio={},
        steps={"metainit": None, "gradinit": None},
        splits=_SPLITS,
        figure3="resnet-110",
        batches=100,
        samples=128,
    ),
    "small": Scale(
        seeds=3,
        cifar=_SMALL,
        models={"ResNet-20": ("resnet-20", "resnet110")},
        imagenet=replace(_SMALL, model="resnet-20"),
        swin=replace(
            _SMALL,
            model="swin-cifar",
            epochs=8,
            warmup_epochs=1.0,
            label_smoothing=0.1,
            augmentation=Augmentation(crop=4, flip=True, mixup=0.8),
            **_SWIN,
        ),
        nio={"steps": 30},
        steps={"metainit": 30, "gradinit": 30},
        splits=((2, 0.0), (2, 0.6), (4, 0.2)),
        figure3="resnet-110",
        batches=100,
        samples=16,
    ),
    "smoke": Scale(
        seeds=2,
        cifar=_SMOKE,
        models={"ResNet-8": ("resnet-8", "resnet110")},
        imagenet=_SMOKE,
        swin=replace(_SMOKE, model="swin-cifar", warmup_epochs=0.5, **_SWIN),
        nio={"steps": 2},
        steps={"metainit": 2, "gradinit": 2},
        splits=((2, 0.0), (4, 0.2)),
        figure3="resnet-8",
        batches=2,
        samples=4,
    ),
}


def spelled(name: str, **settings: Any) -> str:
    """A method and its settings as :mod:`~neuroinit.experiments.training.starts` reads them.

    Example:
        >>> spelled("nio", steps=40)
        'nio:steps=40'
    """
    given = ",".join(f"{key}={value!r}" for key, value in settings.items() if value is not None)
    return f"{name}:{given}" if given else name


def methods(scale: Scale, preset: str) -> dict[str, dict[str, Any]]:
    """Rows of Tables 1 and 2: what each changes in the configuration."""
    known = preset if preset in GRADINIT_PRESETS else None
    return {
        "Kaiming": {"method": "kaiming"},
        "Warmup": {"method": "kaiming", "warmup_epochs": 1.0},
        "MetaInit": {"method": spelled("metainit", steps=scale.steps["metainit"])},
        "GradInit": {"method": spelled("gradinit", preset=known, steps=scale.steps["gradinit"])},
        AUTHORS: {"method": spelled("nio-reference", preset=preset, **scale.nio)},
        OURS: {"method": spelled("nio", **scale.nio)},
    }


def cifar(scale: Scale, name: str, data: str | None) -> Iterator[Cell]:
    """Tables 1 and 2: three networks with and without BatchNorm; ``name`` is the dataset."""
    base = replace(scale.cifar, data=data or (name if scale.cifar.data == "cifar10" else "digits"))
    if name == "cifar100":
        base = replace(base, augmentation=replace(base.augmentation, cutout=8))
    for group, suffix in ((WITH, ""), (WITHOUT, "-nobn")):
        for column, (model, preset) in scale.models.items():
            changes = {"model": model + suffix, "clip": 1.0 if suffix else 0.0}
            for row, method in methods(scale, f"{name}-{preset}{suffix}").items():
                yield Cell(group, row, column, replace(base, **{**changes, **method}))


def table3(scale: Scale, data: str | None) -> Iterator[Cell]:
    """Table 3: ResNet-50 on ImageNet, or its stand-in."""
    base = replace(scale.imagenet, data=data or scale.imagenet.data)
    rows = methods(replace(scale, steps=_imagenet_steps(scale)), "imagenet-resnet50")
    rows["FixUp"] = {"method": "fixup", "model": f"fixup-{base.model.removeprefix('torchvision:')}"}
    for row in ("Kaiming", "FixUp", "MetaInit", "GradInit", AUTHORS, OURS):
        yield Cell("", row, "ResNet", replace(base, **rows[row]))


def _imagenet_steps(scale: Scale) -> dict[str, int]:
    return {name: scale.steps[name] or number for name, number in _IMAGENET_STEPS.items()}


def swin_starts(scale: Scale, data: str | None) -> Iterator[Cell]:
    """A row for every start of Table 5 and for MetaInit: their costs, as in Table 3."""
    cells = [cell for cell in table5(scale, data) if cell.row == "w/ warmup"]
    metainit = spelled("trunc-normal+metainit", steps=_imagenet_steps(scale)["metainit"])
    yield Cell("", "MetaInit", "Swin", replace(cells[0].config, method=metainit))
    for cell in cells:
        yield Cell("", cell.column, "Swin", cell.config)


def table4(scale: Scale, data: str | None) -> Iterator[Cell]:
    """Table 4: numbers of sub-batches and overlap ratios."""
    model, preset = next(iter(scale.models.values()))
    name = data or ("cifar100" if scale.cifar.data == "cifar10" else "digits")
    base = replace(scale.cifar, model=model, data=name)
    for d, r in scale.splits:
        changes = {"preset": f"cifar100-{preset}", **scale.nio, "sub_batches": d, "overlap": r}
        method = spelled("nio-reference", **changes)
        yield Cell("", str(d), f"r={r:g}", replace(base, method=method))


def table5(scale: Scale, data: str | None) -> Iterator[Cell]:
    """Table 5: Swin with and without warmup."""
    base = replace(scale.swin, data=data or scale.swin.data)
    gradinit, authors, ours = (f"trunc-normal+{n}" for n in ("gradinit", "nio-reference", "nio"))
    columns = {  # what the learned ones start from is not said; Swin's own start is the obvious one
        "Kaiming": "kaiming",
        "TruncNormal": "trunc-normal",
        "GradInit": spelled(gradinit, steps=_imagenet_steps(scale)["gradinit"]),
        AUTHORS: spelled(authors, preset="imagenet-swin-t", **scale.nio),
        OURS: spelled(ours, **scale.nio),
    }
    for row, epochs in (("w/ warmup", base.warmup_epochs), ("w/o warmup", 0.0)):
        for column, method in columns.items():
            yield Cell("", row, column, replace(base, method=method, warmup_epochs=epochs))


def figure2(scale: Scale, data: str | None) -> Iterator[Cell]:
    """Figure 2: test accuracy for ways to cut a batch, sample-wise among them."""
    model, preset = next(iter(scale.models.values()))
    base = replace(scale.cifar, model=model, data=data or scale.cifar.data)
    size = base.init_batch_size or base.batch_size
    for d, r in ((size, 0.0), (2, 0.0), (2, 0.6), (4, 0.2)):
        changes = {"preset": f"cifar10-{preset}", **scale.nio, "sub_batches": d, "overlap": r}
        method = spelled("nio-reference", **changes)
        yield Cell(f"D={d}, r={r:g}", str(d), f"{r:g}", replace(base, method=method))


def resized(scale: Scale, init_batch_size: int | None) -> Scale:
    """The scale with another number of images a step of the methods."""
    if init_batch_size is None:
        return scale
    cifar, imagenet, swin = (
        replace(config, init_batch_size=init_batch_size)
        for config in (scale.cifar, scale.imagenet, scale.swin)
    )
    return replace(scale, cifar=cifar, imagenet=imagenet, swin=swin)


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells of these groups, rows and columns; of all where none is named.

    Raises:
        ValueError: A name is of no group, row or column.
    """
    places = [
        list(dict.fromkeys(getattr(c, kind) for c in cells)) for kind in ("group", "row", "column")
    ]
    known = [name for names in places for name in names if name]
    for name in only:
        if name not in known:
            raise ValueError(
                f"`--only` knows no row or column `{name}`. Choose from "
                f"{', '.join(repr(k) for k in dict.fromkeys(known))}."
            )
    groups, rows, columns = (set(names) & set(only) or set(names) for names in places)
    return [c for c in cells if c.group in groups and c.row in rows and c.column in columns]


GRIDS: dict[str, Callable[[Scale, str | None], Iterator[Cell]]] = {
    "table1": lambda scale, data: cifar(scale, "cifar10", data),
    "table2": lambda scale, data: cifar(scale, "cifar100", data),
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "figure2": figure2,
}
