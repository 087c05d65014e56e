"""Tutorials show figures that their last line returns; pyplot's own are shown by sphinx-gallery."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def returned_figure(block: Any, variables: dict[str, Any], conf: dict[str, Any], **_: Any) -> str:
    """Save the figure that a block of a tutorial returns."""
    made = variables["example_globals"].get("___")
    if not isinstance(made, Figure):
        return ""
    variables["example_globals"]["___"] = None  # it stays until another block returns something
    path = next(variables["image_path_iterator"])
    made.savefig(path)
    return str(figure_rst([path], conf["src_dir"]))
