"""Figure 3 with the paper's form of NIO, the authors' and ours: records, table and figure.

    python -m benchmarks.paper.figure3 run --data folder:CIFAR10    # resumable; hours
    python -m benchmarks.paper.figure3                              # the table and the figure

As `neuroinit reproduce figure3 --scale small`, whose files `run` reads and continues. A line of
figure3.jsonl is a network and a form: norm ratio and cosine of the gradients of single samples, of
every weight tensor on the first batch, and of all parameters on every batch.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from neuroinit.common.files import replacing
from neuroinit.experiments.paper.figure3 import Measured, draw_figure3, measure
from neuroinit.experiments.paper.grids import figure3_forms
from neuroinit.experiments.paper.run_grid import Workspace
from neuroinit.experiments.paper.sizes import SIZES

RESULTS = Path(__file__).with_name("figure3.jsonl")
FIGURE = Path(__file__).parents[2] / "docs" / "paper" / "figure3.png"
NETWORKS = {"with BatchNorm": "", "without BatchNorm": "-nobn"}  # and the suffix of their names


def run(data: str, out: Path) -> None:
    """Measure what is missing, and write the records."""
    size = SIZES["small"]
    base, workspace = replace(size.cifar, data=data), Workspace(out, Path("data"), False, print)
    rows = [
        {"network": network, "form": form, **_rounded(found)}
        for network, suffix in NETWORKS.items()
        for form, config in figure3_forms(size, base, suffix).items()
        for found in [measure(config, size.batches, size.samples, workspace)]
    ]
    with replacing(RESULTS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _rounded(found: Measured) -> dict[str, Any]:
    """Four digits; ``None`` for what is not finite, which JSON lacks."""
    return {
        part: {
            name: [float(f"{x:.4g}") if math.isfinite(x) else None for x in values]
            for name, values in found[part].items()
        }
        for part in ("layers", "batches")
    }


def read() -> list[dict[str, Any]]:
    """The records."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def table() -> str:
    """Markdown: a line for each network and form, over all batches."""
    lines = [
        "| network | start | largest / smallest norm in a batch: median (range) | cosine: median "
        "(range) |",
        "|---|---|---|---|",
    ]
    for row in read():
        ratios, cosines = (row["batches"][name] for name in ("norm_ratio", "cosine"))
        known = [x for x in ratios if x is not None]
        lost = len(ratios) - len(known)
        ratio = f"not finite in {lost} of {len(ratios)} batches" if lost else _range(known, ".3g")
        cosine = _range([x for x in cosines if x is not None], ".3f")
        lines.append(f"| {row['network']} | {row['form']} | {ratio} | {cosine} |")
    return "\n".join(lines)


def _range(values: list[float], form: str) -> str:
    median = statistics.median(values)
    return f"{median:{form}} ({min(values):{form}} to {max(values):{form}})"


def draw(path: Path = FIGURE) -> None:
    """The four panels of the paper's figure, a row a network."""
    networks: dict[str, dict[str, Measured]] = {}
    for row in read():
        parts = {
            part: {
                name: [math.inf if x is None else x for x in values]
                for name, values in row[part].items()
            }
            for part in ("layers", "batches")
        }
        own = networks.setdefault(f"ResNet-110, {row['network']}", {})
        own[row["form"]] = Measured(layers=parts["layers"], batches=parts["batches"])
    draw_figure3(networks, path)


def main() -> None:
    """Measure, or print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", nargs="?", choices=["run", "table"], default="table")
    parser.add_argument("--data", default="cifar10", help="or folder:PATH")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs")
    options = parser.parse_args()
    if options.action == "run":
        run(options.data, options.out)
    print(table())
    draw()


if __name__ == "__main__":
    main()
