"""Reproduce a table or a figure of the paper, from its name to its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from neuroinit.common.checks import check_count
from neuroinit.common.files import write_text
from neuroinit.experiments.paper import tables
from neuroinit.experiments.paper.costs import Cost, cost
from neuroinit.experiments.paper.figure2 import draw_figure2
from neuroinit.experiments.paper.figure3 import draw_figure3, measure
from neuroinit.experiments.paper.grids import (
    GRIDS,
    Cell,
    chosen,
    figure3_forms,
    swin_methods,
    with_settings,
)
from neuroinit.experiments.paper.run_grid import Outcomes, Workspace, run_all
from neuroinit.experiments.paper.sizes import SIZES, Size
from neuroinit.experiments.paper.table_formats import Table
from neuroinit.experiments.training.initializations import learned_method

NAMES = ("table1", "table2", "table3", "table4", "table5", "figure2", "figure3")
TITLES = {
    "table1": "Table 1 of the paper (CIFAR-10)",
    "table2": "Table 2 of the paper (CIFAR-100)",
    "table3": "Table 3 of the paper (batch settings of NIO)",
    "table4": "Table 4 of the paper (ResNet-50 on ImageNet)",
    "table5": "Table 5 of the paper (Swin-T on ImageNet)",
}


def reproduce(
    name: str,
    scale: str,
    workspace: Workspace,
    data: str | None = None,
    seeds: Sequence[int] = (),
    training: bool = True,
    only: Sequence[str] = (),
    init_batch_size: int | None = None,
) -> list[Path]:
    """Run what is missing, and write the table or the figure.

    A part of a table (some seeds, rows or columns) and a table of costs have file names of their
    own and do not replace the whole table.

    Args:
        name: ``table1`` to ``table5``, ``figure2`` or ``figure3``.
        scale: Size of the experiment: ``paper``, ``small`` or ``smoke``.
        workspace: Where runs and data are.
        data: Other data than the paper's, for example ``folder:PATH``.
        seeds: Only these seeds. By default 0, 1, ... as many as the size has.
        training: ``False`` measures only what needs no training: the costs of Tables 3 to 5.
        only: Only these groups, rows and columns, by name.
        init_batch_size: Images per step of the methods, instead of the paper's number.

    Returns:
        The files that were written.
    """
    _check(name, scale, seeds, training, only)
    if init_batch_size is not None:
        check_count("init_batch_size", init_batch_size, 1)
    size = SIZES[scale].with_init_batch_size(init_batch_size)
    if name == "figure3":
        return [_figure3(size, data, workspace, workspace.out / f"{name}-{scale}.png")]
    grid = swin_methods if name == "table5" and not training else GRIDS[name]
    every = list(grid(size, data))
    cells, all_seeds = chosen(every, only), range(size.seeds)
    if not training:
        _check_costs(name, cells)
    words = [name, scale, *([] if training else ["costs"])]
    words += [] if cells == every else ["only", *only]
    words += [] if set(seeds or all_seeds) == set(all_seeds) else ["seeds", *map(str, seeds)]
    stem = str(workspace.out / re.sub(r"[^\w=.]+", "-", " ".join(words)).strip("-"))
    workspace.out.mkdir(parents=True, exist_ok=True)
    found = run_all(cells, seeds or all_seeds, workspace) if training else {}
    if name == "figure2":
        draw_figure2(cells, found, Path(f"{stem}.png"))
        return [Path(f"{stem}.png")]
    table = _table(name, f"{TITLES[name]}, scale {scale}", cells, found, workspace)
    write_text(f"{stem}.md", table.markdown())
    write_text(f"{stem}.tex", table.latex())
    return [Path(f"{stem}.md"), Path(f"{stem}.tex")]


def _check(
    name: str, scale: str, seeds: Sequence[int], training: bool, only: Sequence[str]
) -> None:
    for what, value, choices in (("name", name, NAMES), ("scale", scale, tuple(SIZES))):
        if value not in choices:
            raise ValueError(f"There is no {what} `{value}`. Choose one of {', '.join(choices)}.")
    if not training and name not in ("table3", "table4", "table5", "figure3"):
        raise ValueError(f"{name} has no part that needs no training: drop `--no-training`.")
    if only and name == "figure3":
        raise ValueError("figure3 has no rows to choose from: drop `--only`.")
    given = f"`--seeds {' '.join(map(str, seeds))}`"
    if seeds and (name == "figure3" or not training):
        raise ValueError(f"{given}: nothing is trained here, so there are no seeds to choose.")
    if len(set(seeds)) < len(seeds) or min(seeds, default=0) < 0:
        raise ValueError(f"{given}: name different seeds of at least 0, as in `--seeds 0 1`.")


def _check_costs(name: str, cells: Sequence[Cell]) -> None:
    """Refuse a table of costs without rows."""
    if all(learned_method(cell.config.method) is None for cell in cells):
        raise ValueError(
            f"{name} without training is a table of costs, and none of "
            f"{', '.join(dict.fromkeys(cell.row for cell in cells))} takes steps."
        )


def _table(
    name: str, title: str, cells: list[Cell], found: Outcomes, workspace: Workspace
) -> Table:
    if name in ("table4", "table5") and not found:
        return tables.cost_table(name, title, cells, _costs(cells, workspace))
    if name == "table5":
        return tables.swin_table(title, cells, found)
    if name == "table3":
        authors = _first_of_each_row(cells)
        ours = [replace(c, config=replace(c.config, method=_our_form(c))) for c in authors]
        costs = _costs(authors, workspace), _costs(ours, workspace)
        return tables.split_table(title, cells, found, *costs)
    if name == "table4":
        return tables.imagenet_table(title, cells, found, _costs(cells, workspace))
    return tables.cifar_table(name, title, cells, found)


def _costs(cells: Sequence[Cell], workspace: Workspace) -> dict[str, Cost]:
    """Row -> cost, for the rows whose method takes steps."""
    return {
        cell.row: cost(cell.config, workspace)
        for cell in cells
        if learned_method(cell.config.method) is not None
    }


def _first_of_each_row(cells: Sequence[Cell]) -> list[Cell]:
    return list({cell.row: cell for cell in reversed(cells)}.values())[::-1]


def _our_form(cell: Cell) -> str:
    """``NIO()`` with the D and r of a cell of Table 3."""
    return with_settings("nio", sub_batches=int(cell.row), overlap=float(cell.column[2:]))


def _figure3(size: Size, data: str | None, workspace: Workspace, path: Path) -> Path:
    base = replace(size.cifar, data=data or size.cifar.data)
    measured = {
        f"{size.figure3}, {label}": {
            form: measure(config, size.batches, size.samples, workspace)
            for form, config in figure3_forms(size, base, suffix).items()
        }
        for label, suffix in (("BatchNorm", ""), ("no BatchNorm", "-nobn"))
    }
    draw_figure3(measured, path)
    return path
