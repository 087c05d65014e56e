"""The charts of the page, drawn by Bokeh.

Bokeh, because its script is 1.3 MB where plotly's is 4.8 MB, it draws hundreds of points on a
phone without effort, and needs nothing but its own script to run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from neuroinit.common.errors import needs_extra

with needs_extra("report"):
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool
    from bokeh.models.annotations import BoxAnnotation, Span
    from bokeh.plotting import figure

BEFORE, AFTER = "#d1603d", "#2f93b5"  # readable on white and on black
Data = Mapping[str, Any]


def _axes(x_label: str, title: str, log: bool, hover: list[tuple[str, str]], height: int) -> Any:
    made: Any = figure(
        height=height,
        min_border_left=64,
        sizing_mode="stretch_width",
        tools="",
        toolbar_location=None,
        y_axis_type="log" if log else "linear",
        title=title,
        x_axis_label=x_label,
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_alpha=0,
    )
    made.add_tools(HoverTool(tooltips=hover, mode="mouse", point_policy="snap_to_data"))
    made.title.text_font_size = "14px"
    made.axis.minor_tick_line_alpha = 0
    made.axis.axis_label_text_font_style = "normal"
    made.xgrid.grid_line_alpha = 0
    return made


def history(data: Data) -> list[Any]:
    """GradCosine, norm and loss over the steps; steps that began above the bound are shaded."""
    records = data["history"]
    if not records:
        return []
    above = [bool(record["constrained"]) for record in records]
    numbers = {key: [float(record[key]) for record in records] for key in records[0]}
    columns = {**numbers, "bound": ["above" if a else "within" for a in above]}
    hover = [("step", "@step"), ("GradCosine", "@cosine{0.0000}"), ("norm", "@norm{0.000 a}")]
    hover += [("loss", "@loss{0.0000}"), ("bound", "@bound")]
    gamma = data["settings"].get("gamma")
    found = []
    for key, title in (("cosine", "GradCosine"), ("norm", "Gradient norm"), ("loss", "Loss")):
        known = [value for value in numbers[key] if math.isfinite(value)]
        if not known:  # a method that does not look at it
            continue
        low, high = min(known), max(known)
        log = low > 0 and (key == "norm" or high > 100 * low)
        made = _axes("step", title, log, hover, 260)
        source = ColumnDataSource(columns)
        made.line("step", key, source=source, line_width=2, color=AFTER)
        made.scatter("step", key, source=source, size=6, color=AFTER)
        for first, last in _runs(above):
            made.add_layout(
                BoxAnnotation(
                    left=first - 0.5, right=last + 0.5, fill_color=BEFORE, fill_alpha=0.15
                )
            )
        if key == "norm" and isinstance(gamma, (int, float)):
            line = Span(location=gamma, dimension="width", line_dash="dashed", line_color=BEFORE)
            made.add_layout(line)
        found.append(made)
    return found


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last position of every run of true flags."""
    found, position = [], 0
    for flag, group in itertools.groupby(flags):
        length = len(list(group))
        if flag:
            found.append((position, position + length - 1))
        position += length
    return found


def layers(data: Data) -> list[Any]:
    """Norm, ratio and cosine of every tensor's gradient, before and after, first to last."""
    sides = [("before", data["before"], BEFORE), ("after", data["after"], AFTER)]
    known = [(label, stats["layers"], color) for label, stats, color in sides if stats]
    titles = (
        ("norm", "Gradient norm of every tensor", True),
        ("norm_ratio", "Largest over smallest norm", True),
        ("cosine", "GradCosine of every tensor", False),
    )
    return [_layer_chart(known, key, title, log) for key, title, log in titles] if known else []


def _layer_chart(known: Sequence[tuple[str, Any, str]], key: str, title: str, log: bool) -> Any:
    hover = [("tensor", "@name")]
    hover += [(label, f"@{label}{{0.0000 a}}") for label, _, _ in known]
    made = _axes("tensor, first to last", title, log, hover, 280)
    columns: dict[str, list[Any]] = {"name": [layer["name"] for layer in known[0][1]]}
    columns["index"] = list(range(len(columns["name"])))
    for label, records, _ in known:
        columns[label] = [_drawable(record[key], log) for record in records]
    source = ColumnDataSource(columns)
    for label, _, color in known:
        made.scatter("index", label, source=source, size=6, color=color, legend_label=label)
    made.legend.orientation = "horizontal"
    made.legend.background_fill_alpha = 0
    made.legend.border_line_alpha = 0
    made.legend.padding = 0
    made.add_layout(made.legend[0], "above")
    return made


def _drawable(value: Any, log: bool) -> float:
    """A number for the chart: a gap where there is none, or a logarithm has no place for it."""
    number = float(value)
    usable = math.isfinite(number) and (number > 0 or not log)
    return number if usable else float("nan")


def scales(data: Data) -> list[Any]:
    """All scales, smallest first, as bars from 1."""
    ordered = sorted(data["scales"].items(), key=lambda item: item[1])
    ordered = [(name, scale) for name, scale in ordered if scale > 0]
    if all(scale == 1 for _, scale in ordered):
        return []
    made = _axes(
        "tensor, smallest scale first",
        "Scales; 1 leaves a tensor as it was",
        True,
        [("tensor", "@name"), ("scale", "@scale{0.0000}")],
        300,
    )
    values = [scale for _, scale in ordered]
    columns = {
        "index": list(range(len(ordered))),
        "name": [name for name, _ in ordered],
        "scale": values,
        "low": [min(scale, 1.0) for scale in values],
        "high": [max(scale, 1.0) for scale in values],
        "color": [BEFORE if scale < 1 else AFTER for scale in values],
    }
    made.vbar(
        "index", 0.8, top="high", bottom="low", color="color", source=ColumnDataSource(columns)
    )
    made.scatter("index", "scale", size=4, color="color", source=ColumnDataSource(columns))
    low, high = min(*values, 1 / 1.2), max(*values, 1.2)
    made.y_range.start, made.y_range.end = low / 1.1, high * 1.1
    if high / low < 20:  # powers of ten alone would leave the axis nearly empty
        made.yaxis.ticker = FixedTicker(ticks=[0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10])
    return [made]
