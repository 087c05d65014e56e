"""From the name of a table or figure of the paper to its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from neuroinit.experiments import figures, tables
from neuroinit.experiments.costs import Cost, cost
from neuroinit.experiments.grid import Found, Place, run_all
from neuroinit.experiments.paper import GRIDS, SCALES, Cell, Scale, spelled
from neuroinit.experiments.starts import learned
from neuroinit.files import write_text

NAMES = ("table1", "table2", "table3", "table4", "table5", "figure2", "figure3")
TITLES = {
    "table1": "Table 1: test accuracies on CIFAR-10",
    "table2": "Table 2: test accuracies on CIFAR-100",
    "table3": "Table 3: ResNet on ImageNet",
    "table4": "Table 4: batch settings of NIO",
    "table5": "Table 5: Swin with and without warmup",
}


def reproduce(
    name: str,
    scale: str,
    place: Place,
    data: str | None = None,
    seeds: Sequence[int] | None = None,
    training: bool = True,
) -> list[Path]:
    """Run what is missing, and write the table or the figure.

    Args:
        name: ``table1`` to ``table5``, ``figure2`` or ``figure3``.
        scale: ``paper``, ``small`` or ``smoke``.
        place: Where runs live and data is.
        data: Other data than the paper's, as ``folder:PATH``.
        seeds: Only these; by default as many as the scale has.
        training: ``False`` measures only what needs no training: the costs of Tables 3 to 5.

    Returns:
        The files.
    """
    for what, value, choices in (("name", name, NAMES), ("scale", scale, tuple(SCALES))):
        if value not in choices:
            raise ValueError(f"There is no {what} `{value}`. Choose one of {', '.join(choices)}.")
    if not training and name not in ("table3", "table4", "table5", "figure3"):
        raise ValueError(f"Nothing of {name} can be had without training.")
    place.out.mkdir(parents=True, exist_ok=True)
    size = SCALES[scale]
    stem = place.out / f"{name}-{scale}"
    if name == "figure3":
        return [_figure3(size, data, place, stem.with_suffix(".png"))]
    cells = list(GRIDS[name](size, data))
    chosen = list(seeds) if seeds else list(range(size.seeds))
    found = run_all(cells, chosen, place) if training else {}
    if name == "figure2":
        figures.figure2(cells, found, stem.with_suffix(".png"))
        return [stem.with_suffix(".png")]
    table = _table(name, f"{TITLES[name]}, scale {scale}", cells, found, place)
    write_text(stem.with_suffix(".md"), table.markdown())
    write_text(stem.with_suffix(".tex"), table.latex())
    return [stem.with_suffix(".md"), stem.with_suffix(".tex")]


def _table(name: str, title: str, cells: list[Cell], found: Found, place: Place) -> tables.Table:
    if name == "table5" and not found:
        cells = [cell for cell in cells if cell.row == cells[0].row]
        return tables.prices(title, _costs([replace(c, row=c.column) for c in cells], place))
    if name == "table3" and not found:
        return tables.prices(title, _costs(cells, place))
    if name == "table5":
        return tables.transformer(title, cells, found)
    if name == "table4":
        first = _first_of_each_row(cells)
        ours = [replace(c, config=replace(c.config, method=_our_form(c))) for c in first]
        return tables.splits(title, cells, found, _costs(first, place), _costs(ours, place))
    if name == "table3":
        return tables.imagenet(title, cells, found, _costs(cells, place))
    return tables.networks(name, title, cells, found)


def _costs(cells: Sequence[Cell], place: Place) -> dict[str, Cost]:
    """Costs of the rows whose method takes steps."""
    return {
        cell.row: cost(cell.config, place)
        for cell in cells
        if learned(cell.config.method) is not None
    }


def _first_of_each_row(cells: Sequence[Cell]) -> list[Cell]:
    return list({cell.row: cell for cell in reversed(cells)}.values())[::-1]


def _our_form(cell: Cell) -> str:
    """NIO() with a cell's D and r: BatchNorm's statistics are those of the sub-batches."""
    return spelled("nio", sub_batches=int(cell.row), overlap=float(cell.column[2:]))


def _figure3(size: Scale, data: str | None, place: Place, path: Path) -> Path:
    base = replace(size.cifar, method=spelled("nio", **size.nio), data=data or size.cifar.data)
    records = {
        f"{size.figure3}, {label}": figures.figure3(
            replace(base, model=size.figure3 + suffix), size.batches, size.samples, place
        )
        for label, suffix in (("BatchNorm", ""), ("no BatchNorm", "-nobn"))
    }
    figures.draw_figure3(records, path)
    return path
