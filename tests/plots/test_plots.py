"""Figures for a paper's column: what is on them, and what they refuse."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.choose.auto_result import AutoResult, CandidateRecord

pytest.importorskip("matplotlib", reason='needs pip install "neuroinit[plots]"')


@pytest.fixture(scope="module")
def result():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(7)]
    return ni.optimize(model, batches, method=ni.NIO(steps=6, gamma=0.5))


def records(column="norm"):
    return [{"method": m, "seed": s, column: 1.0 + s} for m in ("NIO", "Kaiming") for s in range(3)]


FIGURES = {
    "history": lambda r: ni.plots.history(r),
    "records": lambda r: ni.plots.history(r.history),
    "layers": lambda r: ni.plots.layers(r),
    "one side": lambda r: ni.plots.layers(r.after),
    "batches": lambda r: ni.plots.batches(r),
    "scales": lambda r: ni.plots.scales(r),
    "compare": lambda r: ni.plots.compare(records()),
}


@pytest.mark.parametrize("name", FIGURES)
def test_one_column_wide_and_readable(result, name, tmp_path):
    figure = FIGURES[name](result)
    assert figure.get_size_inches()[0] == pytest.approx(3.25)
    figure.savefig(tmp_path / "figure.pdf")
    figure.canvas.draw()
    for ax in figure.axes:
        texts = [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
        assert all(6.5 <= text.get_fontsize() <= 9 for text in texts if text.get_text())
        box, whole = ax.get_tightbbox(), figure.bbox
        assert box.x0 >= whole.x0 - 1
        assert box.x1 <= whole.x1 + 1


def test_history_draws_every_step_and_shades_the_bound(result):
    figure = ni.plots.history(result)
    drawn = figure.axes[0].lines[0].get_ydata()
    assert list(drawn) == [record.cosine for record in result.history]
    assert any(record.constrained for record in result.history)
    assert all(ax.patches for ax in figure.axes)


def test_scales_are_sorted(result):
    points = ni.plots.scales(result).axes[0].collections[-1].get_offsets()
    assert list(points[:, 1]) == sorted(result.scales.values())


def test_compare_draws_mean_and_spread():
    ax = ni.plots.compare(records()).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["NIO", "Kaiming"]
    assert ax.lines[0].get_xdata()[0] == pytest.approx(2.0)


def test_compare_says_what_was_not_finite():
    rows = [{"method": "NIO", "seed": s, "loss": float("nan") if s else 1.0} for s in range(3)]
    ax = ni.plots.compare(rows, "loss").axes[0]
    assert "2 of 3 not finite" in ax.texts[0].get_text()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ni.plots.compare(records(), "speed"), "`method`, `seed`, `norm`"),
        (lambda: ni.plots.compare(records(), "method"), "holds no numbers"),
        (lambda: ni.plots.compare([]), "`records` is empty"),
        (lambda: ni.plots.history([]), "holds no step"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_plots_is_an_attribute_that_costs_nothing_before_use():
    code = (
        "import sys, neuroinit as ni; heavy = {'neuroinit.plots', 'matplotlib', 'bokeh', 'tyro'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "ni.plots; assert 'neuroinit.plots' in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_that_is_never_finite_has_its_cross_at_the_first_step():
    made, axes = ni.plots.figure(1)
    ni.plots.draw_losses(axes[0, 0], [[math.nan], [2.0, 1.0, math.inf], [2.0, 1.0]], "C0", "SGD")
    made.canvas.draw()
    crosses = [line for line in axes[0, 0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[0], [1]]


def test_other_attributes_are_errors():
    with pytest.raises(AttributeError, match="no attribute 'plot'"):
        _ = ni.plot


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ([(math.nan,), (2.0, 1.0)], "log"),
        ([(2.0, 900.0, math.inf), (2.0, 1.0)], "log"),
        ([(-1.0, -2.0), (1.0, 0.5)], "linear"),
        ([(math.nan,), (math.nan,)], "linear"),
    ],
    ids=["nan first", "explodes", "negative", "nothing"],
)
def test_rollouts_of_any_losses(losses, scale):
    rows = [CandidateRecord(f"{k}", (1.0,), 2, 0.1, row) for k, row in enumerate(losses)]
    (ax,) = ni.plots.rollouts(AutoResult("1", rows, "why")).axes
    assert ax.get_yscale() == scale
    drawn = [y for line in ax.lines for y in line.get_ydata()]
    assert all(math.isfinite(y) for y in drawn)
    crosses = sum(line.get_marker() == "x" for line in ax.lines)
    assert crosses == sum(not math.isfinite(row[-1]) for row in losses)
