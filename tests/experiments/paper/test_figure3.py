"""The measures of Figure 3."""

from dataclasses import replace

from neuroinit.experiments.paper import figure3
from neuroinit.experiments.paper.figure3 import draw_figure3, measure
from neuroinit.experiments.paper.run_grid import Workspace
from neuroinit.experiments.paper.sizes import SIZES


def test_an_interrupted_measurement_continues(tmp_path, monkeypatch):
    config = replace(SIZES["smoke"].cifar, model="resnet-8-nobn", method="nio:steps=1")
    whole = measure(config, 3, 4, Workspace(tmp_path / "whole"))
    first = measure(config, 2, 4, Workspace(tmp_path / "cut"))
    (lines,) = (tmp_path / "cut").rglob("measured.jsonl")
    with lines.open("a") as file:
        file.write('{"norm_ratio": 1.')  # a line that a kill cut short
    monkeypatch.setattr(figure3, "optimize", None)  # the scales are read, not learned again
    assert measure(config, 3, 4, Workspace(tmp_path / "cut")) == whole
    assert first["batches"]["cosine"] == whole["batches"]["cosine"][:2]
    kaiming = measure(replace(config, method="kaiming"), 1, 4, Workspace(tmp_path / "cut"))
    assert kaiming["batches"] != whole["batches"]  # the scales were applied


def test_values_that_are_not_finite_can_be_drawn(tmp_path):
    values = {"norm_ratio": [1.0, float("inf")], "cosine": [float("nan"), 0.5]}
    measured = {start: {"layers": values, "batches": values} for start in ("Kaiming", "NIO")}
    draw_figure3({"network": measured}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
