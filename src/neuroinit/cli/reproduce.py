"""``neuroinit reproduce``."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Literal

from neuroinit.experiments.paper.reproduce import reproduce as write_files
from neuroinit.experiments.paper.run_grid import Workspace


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

    The same command continues after an interruption. Several processes can work in the same `--out`
    folder: each takes the next run on which no other process works. A part of a table, chosen
    with `--seeds`, `--only` or `--no-training`, has a file name of its own.

    Example: `neuroinit reproduce table1 --scale small --download`

    Args:
        name: The table or figure.
        scale: Size of the experiment: as in the paper (needs GPUs), for a laptop (about two hours),
            or a test of one minute that everything runs.
        out: Folder of the runs, tables and figures.
        data: Other data than the paper's, for example `folder:PATH` for ImageNet.
        root: Folder of CIFAR's files.
        download: Download CIFAR if it is not there.
        seeds: Only these seeds, as in `--seeds 0 1`. By default all.
        only: Only these rows and columns, as in `--only "w/o BN" Kaiming GradInit`. By default all.
        training: `--no-training` measures only the costs of tables 3 to 5, which need no training.
        init_batch_size: Images per step of the methods, instead of the paper's number.
        json: Print the names of the files as JSON.
    """
    workspace = Workspace(
        out, root, download, lambda line: print(line, file=sys.stderr, flush=True)
    )
    paths = write_files(name, scale, workspace, data, seeds, training, only, init_batch_size)
    if json:
        print(json_module.dumps({"files": [str(path) for path in paths]}))
        return
    for path in paths:
        if path.suffix == ".md":
            print(path.read_text())
        print(path)
