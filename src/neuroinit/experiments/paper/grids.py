"""The runs of the paper's tables and of Figure 2, as grids of cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from neuroinit.experiments.paper.sizes import Size
from neuroinit.experiments.training.config import Config
from neuroinit.methods.gradinit import GRADINIT_PRESETS

WITH, WITHOUT = "w/ BN", "w/o BN"
OURS, AUTHORS = "NIO (ours)", "NIO (authors)"  # our defaults, and the authors' released code
PAPER = "NIO (paper)"  # exactly as in the paper
IMAGENET_METAINIT, IMAGENET_GRADINIT = 1000, 2000  # steps; the footnote of Table 4


@dataclass(frozen=True)
class Cell:
    """One run of a table: its group of rows, its row, its column, and its configuration."""

    group: str
    row: str
    column: str
    config: Config

    @property
    def position(self) -> tuple[str, str, str]:
        """Group, row and column."""
        return self.group, self.row, self.column


def with_settings(name: str, **settings: object) -> str:
    """The name of an initialization with settings; those that are ``None`` are left out.

    Example:
        >>> with_settings("nio", steps=40, gamma=None)
        'nio:steps=40'
    """
    given = ",".join(f"{key}={value!r}" for key, value in settings.items() if value is not None)
    return f"{name}:{given}" if given else name


def _rows(
    base: Config, size: Size, preset: str, metainit_steps: int | None, gradinit_steps: int | None
) -> dict[str, Config]:
    """The rows of Tables 1, 2 and 4; ``preset`` names the settings in the authors' releases."""
    known = preset if preset in GRADINIT_PRESETS else None
    methods = {
        "Kaiming": "kaiming",
        "Warmup": "kaiming",
        "MetaInit": with_settings("metainit", steps=metainit_steps),
        "GradInit": with_settings("gradinit", preset=known, steps=gradinit_steps),
        AUTHORS: with_settings("nio-reference", preset=preset, steps=size.nio_steps),
        OURS: with_settings("nio", steps=size.nio_steps),
    }
    rows = {row: replace(base, method=method) for row, method in methods.items()}
    rows["Warmup"] = replace(rows["Warmup"], warmup_epochs=1.0)
    return rows


def cifar(size: Size, name: str, data: str | None) -> Iterator[Cell]:
    """Tables 1 and 2: networks with and without BatchNorm; ``name`` is the dataset."""
    base = replace(size.cifar, data=data or (name if size.cifar.data == "cifar10" else "digits"))
    if name == "cifar100":
        base = replace(base, augmentation=replace(base.augmentation, cutout=8))
    for group, suffix, clip in ((WITH, "", 0.0), (WITHOUT, "-nobn", 1.0)):
        for column, (model, preset) in size.models.items():
            config = replace(base, model=model + suffix, clip=clip)
            steps = size.other_steps
            rows = _rows(config, size, f"{name}-{preset}{suffix}", steps, steps)
            for row, cell in rows.items():
                yield Cell(group, row, column, cell)


def table3(size: Size, data: str | None) -> Iterator[Cell]:
    """Table 3: numbers of sub-batches and overlaps."""
    name = data or ("cifar100" if size.cifar.data == "cifar10" else "digits")
    for d, r in size.splits:
        yield Cell("", str(d), f"r={r:g}", _split_config(size, name, "cifar100", d, r))


def table4(size: Size, data: str | None) -> Iterator[Cell]:
    """Table 4: ResNet-50 on ImageNet, or a smaller network on other data."""
    base = replace(size.imagenet, data=data or size.imagenet.data)
    rows = _rows(base, size, "imagenet-resnet50", *_imagenet_steps(size))
    fixup = f"fixup-{base.model.removeprefix('torchvision:')}"
    rows["FixUp"] = replace(base, method="fixup", model=fixup)
    for row in ("Kaiming", "FixUp", "MetaInit", "GradInit", AUTHORS, OURS):
        yield Cell("", row, "ResNet", rows[row])


def _imagenet_steps(size: Size) -> tuple[int, int]:
    """Steps of MetaInit and of GradInit on ImageNet."""
    return size.other_steps or IMAGENET_METAINIT, size.other_steps or IMAGENET_GRADINIT


def figure2(size: Size, data: str | None) -> Iterator[Cell]:
    """Figure 2: numbers of sub-batches and overlaps, among them sub-batches of one sample."""
    samples = size.cifar.init_size
    for d, r in ((samples, 0.0), (2, 0.0), (2, 0.6), (4, 0.2)):
        config = _split_config(size, data or size.cifar.data, "cifar10", d, r)
        yield Cell(f"D={d}, r={r:g}", str(d), f"{r:g}", config)


def figure3_forms(size: Size, base: Config, suffix: str) -> dict[str, Config]:
    """Figure 3: Kaiming and the three forms of NIO, on a network with a suffix of its name."""
    _, preset = next(iter(size.models.values()))
    settings = {"preset": f"cifar10-{preset}{suffix}", "steps": size.nio_steps}
    methods = {
        "Kaiming": "kaiming",
        PAPER: with_settings("nio-paper", **settings),
        AUTHORS: with_settings("nio-reference", **settings),
        OURS: with_settings("nio", steps=size.nio_steps),
    }
    return {
        form: replace(base, model=size.figure3 + suffix, method=method)
        for form, method in methods.items()
    }


def _split_config(size: Size, data: str, presets: str, d: int, r: float) -> Config:
    """The first network, initialized by the authors' form of NIO with D and r."""
    model, preset = next(iter(size.models.values()))
    method = with_settings(
        "nio-reference",
        preset=f"{presets}-{preset}",
        steps=size.nio_steps,
        sub_batches=d,
        overlap=r,
    )
    return replace(size.cifar, model=model, data=data, method=method)


def table5(size: Size, data: str | None) -> Iterator[Cell]:
    """Table 5: Swin with and without warmup.

    The paper does not say from which weights the methods start. We take Swin's own, truncated
    normal ones.
    """
    base = replace(size.swin, data=data or size.swin.data)
    gradinit, authors, ours = (f"trunc-normal+{n}" for n in ("gradinit", "nio-reference", "nio"))
    columns = {
        "Kaiming": "kaiming",
        "TruncNormal": "trunc-normal",
        "GradInit": with_settings(gradinit, steps=_imagenet_steps(size)[1]),
        AUTHORS: with_settings(authors, preset="imagenet-swin-t", steps=size.nio_steps),
        OURS: with_settings(ours, steps=size.nio_steps),
    }
    for row, epochs in (("w/ warmup", base.warmup_epochs), ("w/o warmup", 0.0)):
        for column, method in columns.items():
            yield Cell("", row, column, replace(base, method=method, warmup_epochs=epochs))


def swin_methods(size: Size, data: str | None) -> Iterator[Cell]:
    """One row for every method of Table 5 and for MetaInit, for a table of costs."""
    cells = [cell for cell in table5(size, data) if cell.row == "w/ warmup"]
    metainit = with_settings("trunc-normal+metainit", steps=_imagenet_steps(size)[0])
    yield Cell("", "MetaInit", "Swin", replace(cells[0].config, method=metainit))
    for cell in cells:
        yield Cell("", cell.column, "Swin", cell.config)


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells in the named groups, rows and columns; a kind without a name is not restricted.

    Raises:
        ValueError: There is no group, row or column of that name.
    """
    kinds = [
        list(dict.fromkeys(cell.position[kind] for cell in cells)) for kind in range(3)
    ]  # groups, rows, columns
    known = [name for names in kinds for name in names if name]
    for name in only:
        if name not in known:
            raise ValueError(
                f"`--only`: there is no row or column `{name}`. Choose from "
                f"{', '.join(repr(k) for k in dict.fromkeys(known))}."
            )
    groups, rows, columns = (set(names) & set(only) or set(names) for names in kinds)
    return [c for c in cells if c.group in groups and c.row in rows and c.column in columns]


GRIDS: dict[str, Callable[[Size, str | None], Iterator[Cell]]] = {
    "table1": lambda size, data: cifar(size, "cifar10", data),
    "table2": lambda size, data: cifar(size, "cifar100", data),
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "figure2": figure2,
}
