"""Write figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neuroinit.common.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, completely or not at all; the suffix of ``path`` decides the format."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix(".") or "png")
