"""The figures of the documents, drawn from the records of the benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

SAME = 0.01  # of the range of a color, on average: fonts differ a little between systems


def _conclusions(path: Path) -> None:
    from benchmarks.comparisons.conclusions import draw

    draw(path)


def _text(path: Path) -> None:
    from benchmarks.text.grid import read
    from benchmarks.text.tables import figure

    figure(read(), path)


def _theory(path: Path) -> None:
    from benchmarks.theory.run import read
    from benchmarks.theory.tables import figure

    figure(read(), path)


def _medium(name: str) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        from benchmarks.medium.run import read
        from benchmarks.medium.tables import FIGURES

        FIGURES[name](read(), path)

    return draw


def _figure3(path: Path) -> None:
    from benchmarks.paper.figure3 import draw

    draw(path)


def _performance(path: Path) -> None:
    from benchmarks.cost.bench import FOLDER, read
    from benchmarks.cost.figure import draw

    draw(read(FOLDER / "bench.json"), path)


FIGURES: dict[str, Callable[[Path], None]] = {
    "docs/evidence/conclusions.png": _conclusions,
    "docs/evidence/text.png": _text,
    "docs/evidence/theory.png": _theory,
    "docs/evidence/medium.png": _medium("gains"),
    "docs/evidence/medium-curves.png": _medium("curves"),
    "docs/evidence/medium-splits.png": _medium("splits"),
    "docs/evidence/performance.png": _performance,
    "docs/paper/figure3.png": _figure3,
}


def check_figures(root: Path) -> Iterator[str]:
    """Every figure is that of the records."""
    from matplotlib.image import imread

    with tempfile.TemporaryDirectory() as folder:
        for name, draw in FIGURES.items():
            draw(drawn := Path(folder, "figure.png"))
            found, wanted = imread(root / name), imread(drawn)
            if found.shape != wanted.shape or abs(found - wanted).mean() > SAME:
                yield f"{name}: the records give another figure. Run `make evidence`."
