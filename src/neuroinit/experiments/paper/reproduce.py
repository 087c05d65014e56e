"""From the name of a table or figure of the paper to its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from neuroinit.common.checks import check_count
from neuroinit.common.files import write_text
from neuroinit.experiments.paper import figures, tables
from neuroinit.experiments.paper.costs import Cost, cost
from neuroinit.experiments.paper.grid import Found, Place, run_all
from neuroinit.experiments.paper.settings import (
    GRIDS,
    SCALES,
    Cell,
    Scale,
    chosen,
    resized,
    spelled,
    swin_starts,
)
from neuroinit.experiments.training.starts import learned

NAMES = ("table1", "table2", "table3", "table4", "table5", "figure2", "figure3")
TITLES = {
    "table1": "Table 1 of the paper (CIFAR-10)",
    "table2": "Table 2 of the paper (CIFAR-100)",
    "table3": "Table 3 of the paper (ResNet-50 on ImageNet)",
    "table4": "Table 4 of the paper (batch settings of NIO)",
    "table5": "Table 5 of the paper (Swin-T on ImageNet)",
}


def reproduce(
    name: str,
    scale: str,
    place: Place,
    data: str | None = None,
    seeds: Sequence[int] = (),
    training: bool = True,
    only: Sequence[str] = (),
    init_batch_size: int | None = None,
) -> list[Path]:
    """Run what is missing, and write the table or the figure.

    A part of a table (other seeds than the scale's, some rows or columns) and a table of costs have
    file names of their own, and leave the whole table as it is.

    Args:
        name: ``table1`` to ``table5``, ``figure2`` or ``figure3``.
        scale: ``paper``, ``small`` or ``smoke``.
        place: Where runs live and data is.
        data: Other data than the paper's, as ``folder:PATH``.
        seeds: Only these; by default as many as the scale has.
        training: ``False`` measures only what needs no training: the costs of Tables 3 to 5.
        only: Only these rows and columns, by their names.
        init_batch_size: Images a step of the methods, instead of the scale's own number.

    Returns:
        The files.
    """
    _check(name, scale, seeds, training, only)
    if init_batch_size is not None:
        check_count("init_batch_size", init_batch_size, 1)
    size = resized(SCALES[scale], init_batch_size)
    if name == "figure3":
        return [_figure3(size, data, place, place.out / f"{name}-{scale}.png")]
    lists_costs = name == "table5" and not training
    whole = list((swin_starts if lists_costs else GRIDS[name])(size, data))
    cells, every = chosen(whole, only), range(size.seeds)
    if not training:
        _check_costs(name, cells)
    parts = [name, scale, *([] if training else ["costs"])]
    parts += [] if cells == whole else ["only", *only]
    parts += [] if set(seeds or every) == set(every) else ["seeds", *map(str, seeds)]
    stem = str(place.out / re.sub(r"[^\w=.]+", "-", " ".join(parts)).strip("-"))
    place.out.mkdir(parents=True, exist_ok=True)
    found = run_all(cells, seeds or every, place) if training else {}
    if name == "figure2":
        figures.figure2(cells, found, Path(f"{stem}.png"))
        return [Path(f"{stem}.png")]
    table = _table(name, f"{TITLES[name]}, scale {scale}", cells, found, place)
    write_text(f"{stem}.md", table.markdown())
    write_text(f"{stem}.tex", table.latex())
    return [Path(f"{stem}.md"), Path(f"{stem}.tex")]


def _check(
    name: str, scale: str, seeds: Sequence[int], training: bool, only: Sequence[str]
) -> None:
    for what, value, choices in (("name", name, NAMES), ("scale", scale, tuple(SCALES))):
        if value not in choices:
            raise ValueError(f"There is no {what} `{value}`. Choose one of {', '.join(choices)}.")
    if not training and name not in ("table3", "table4", "table5", "figure3"):
        raise ValueError(f"Nothing of {name} can be had without training.")
    if only and name == "figure3":
        raise ValueError("figure3 has no rows to choose from with `--only`.")
    given = f"`--seeds {' '.join(map(str, seeds))}`"
    if seeds and (name == "figure3" or not training):
        raise ValueError(f"{given}: there is no training here that could have other seeds.")
    if len(set(seeds)) < len(seeds) or min(seeds, default=0) < 0:
        raise ValueError(f"{given}: name different seeds of at least 0, as in `--seeds 0 1`.")


def _check_costs(name: str, cells: Sequence[Cell]) -> None:
    """Refuse a table of costs that would have no row."""
    if all(learned(cell.config.method) is None for cell in cells):
        raise ValueError(
            f"{name} without training is a table of costs, and none of "
            f"{', '.join(dict.fromkeys(cell.row for cell in cells))} takes steps."
        )


def _table(name: str, title: str, cells: list[Cell], found: Found, place: Place) -> tables.Table:
    if name in ("table3", "table5") and not found:
        return tables.prices(name, title, cells, _costs(cells, place))
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
