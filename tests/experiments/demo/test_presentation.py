"""The demo's table and figure."""

import math
from dataclasses import replace

import neuroinit as ni
from neuroinit.experiments.demo.comparison import NETWORKS, Pair
from neuroinit.experiments.demo.presentation import draw, rows, table, text
from neuroinit.experiments.training.simple_loop import Training


def test_a_start_whose_gradients_are_never_finite(small_model, digits_like, tmp_path):
    result = ni.optimize(small_model, digits_like, method=ni.NIO(steps=2, rule=ni.HeldNorm()))
    lost, good = Training([math.nan], 0.1), Training([2.0, 1.0], 0.9)
    pairs = [Pair(name, 0, lost, good, replace(result, before=None)) for name in NETWORKS]
    found = rows(pairs)
    assert [row["gradient norm"] for row in found] == [None, result.after.norm] * 2
    assert [row["diverged"] for row in found] == ["1 of 1", "0 of 1"] * 2
    said = text(found)
    assert "Kaiming's weights: 2 of 2 trainings diverge, with test accuracies of 10%" in said
    assert "after NIO: 0 of 2 trainings diverge, with test accuracies of 90%" in said
    norms = list(table(found, "Digits").columns[2].cells)
    assert norms == ["-", f"{result.after.norm:.2g}"] * 2
    draw(pairs, tmp_path / "demo.svg")
    assert "<svg" in (tmp_path / "demo.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["demo.svg"]
