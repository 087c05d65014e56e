"""``neuroinit demo``."""

from __future__ import annotations

import json as json_module
import time
from pathlib import Path

from neuroinit.cli.outputs import check_folder
from neuroinit.common.checks import check_count
from neuroinit.common.errors import needs_extra
from neuroinit.common.progress import Progress


def demo(
    out: Path = Path("neuroinit-demo.png"), seeds: int = 3, epochs: int = 6, json: bool = False
) -> None:
    """Train two deep networks without normalization, from Kaiming and from NIO.

    The data are scikit-learn's digits, which need no download. The optimizer is SGD with learning
    rate 0.1, without warmup. The demo takes about a minute.

    Example: `neuroinit demo --out demo.png`

    Args:
        out: File of the figure.
        seeds: Number of seeds for every network.
        epochs: Number of epochs of every training.
        json: Print the table as JSON.
    """
    with needs_extra("demo"):
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
        from rich.console import Console

        from neuroinit.experiments.demo import comparison, presentation
    check_count("seeds", seeds, 1)
    check_count("epochs", epochs, 1)
    check_folder(out)
    begun, pairs = time.monotonic(), []
    with Progress("demo", seeds * len(comparison.NETWORKS)) as bar:
        for pair in comparison.run(seeds, epochs):
            pairs.append(pair)
            bar.show(len(pairs), pair.network)
    presentation.draw(pairs, out)
    rows = presentation.rows(pairs)
    if json:
        print(json_module.dumps({"rows": rows, "figure": str(out)}, indent=1))
        return
    console = Console()
    title = f"Digits, SGD {comparison.LEARNING_RATE}, no warmup, {epochs} epochs"
    console.print(presentation.table(rows, title))
    console.print(presentation.text(rows))
    console.print(f"Figure: {out}  ({time.monotonic() - begun:.0f} s)")
