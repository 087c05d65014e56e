"""Figures for a paper's column: what is on them, and what they refuse."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.choose.auto_result import AutoResult, CandidateRecord
from neuroinit.choose.comparison_table import Curves
from neuroinit.plots.style import log_axis

pytest.importorskip("matplotlib", reason='needs pip install "neuroinit[plots]"')


@pytest.fixture(scope="module")
def result():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(7)]
    return ni.optimize(model, batches, method=ni.NIO(steps=6, gamma=0.5))


EMPTY = ni.Result({}, [], None, None, {}, "keep", "done")


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


def test_layers_draw_weights_and_biases_of_both_sides(result):
    figure = ni.plots.layers(result)
    for ax, quantity in zip(figure.axes, ("norm", "norm_ratio", "cosine"), strict=True):
        lines = [list(line.get_ydata()) for line in ax.lines]
        wanted = [
            [layer[quantity] for layer in stats.layers if layer.name.endswith(kind)]
            for stats in (result.before, result.after)
            for kind in ("weight", "bias")
        ]
        assert lines == wanted
    markers = [line.get_marker() for line in figure.axes[0].lines]
    assert markers[:2] == markers[2:]
    assert markers[0] != markers[1]


def test_layers_name_the_groups(result):
    bottom = ni.plots.layers(result).axes[-1]
    assert [label.get_text() for label in bottom.get_xticklabels()] == ["0", "2"]


def test_scales_of_a_small_model_have_a_line_each_with_a_name(result):
    ax = ni.plots.scales(result).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(result.scales)
    drawn = [line.get_xdata()[0] for line in ax.lines[: len(result.scales)]]
    assert drawn == list(result.scales.values())


def test_scales_of_a_large_model_are_drawn_by_group():
    names = [f"blocks.{k}.{part}" for k in range(20) for part in ("weight", "bias")]
    scales = {name: 0.5 + k for k, name in enumerate(names)}
    large = ni.Result(scales, [], None, None, {}, "keep", "done")
    ax = ni.plots.scales(large).axes[0]
    weights, biases = (list(line.get_ydata()) for line in ax.lines[:2])
    assert (weights, biases) == (list(scales.values())[::2], list(scales.values())[1::2])
    assert 2 < len(ax.get_xticklabels()) <= 20
    assert f"{max(scales.values()):.3g}" in ax.get_title(loc="left")


def test_batches_draw_all_norms_and_all_pairs(result):
    top, bottom = ni.plots.batches(result).axes
    count = len(result.after.norms)
    assert list(top.lines[1].get_ydata()) == sorted(result.after.norms.tolist())
    heights = [patch.get_xy()[:, 1].max() for patch in bottom.patches]
    assert max(heights) <= count * (count - 1) / 2
    assert min(heights) >= 1


@pytest.mark.parametrize("missing", ["before", "after"])
def test_both_sides_are_asked_for(result, missing):
    partial = ni.Result(**{**vars(result), missing: None})
    for draw in (ni.plots.layers, ni.plots.batches):
        with pytest.raises(ValueError, match="Draw one side"):
            draw(partial)


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
        (lambda: ni.plots.curves(ni.Comparison([])), "no curves for `quantity = 'training'`"),
        (lambda: ni.plots.curves(ni.Comparison([]), "speed"), "`quantity` should be"),
        (lambda: ni.plots.scales(EMPTY), "no scale above 0"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_plots_is_an_attribute_that_costs_nothing_before_use():
    code = (
        "import sys, neuroinit as ni; heavy = {'neuroinit.plots', 'matplotlib', 'tyro'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "ni.plots; assert 'neuroinit.plots' in sys.modules and 'matplotlib' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_run_that_is_never_finite_has_its_cross_at_the_first_step():
    made, axes = ni.plots.figure(1)
    ni.plots.draw_losses(axes[0, 0], [[math.nan], [2.0, 1.0, math.inf], [2.0, 1.0]], "C0", "SGD")
    made.canvas.draw()
    crosses = [line for line in axes[0, 0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[0], [1]]


def test_losses_that_are_never_finite_can_be_drawn():
    made, axes = ni.plots.figure(1)
    ni.plots.draw_losses(axes[0, 0], [[math.nan]], "C0", "SGD")
    made.canvas.draw()
    assert axes[0, 0].get_yscale() == "log"


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


def test_curves_have_a_line_for_each_method_and_seed():
    steps = tuple(ni.StepRecord(k, 2.0, 0.1 * k, 1.0 + k, 1, 1, False, 0.1) for k in range(3))
    known = {
        ("start", 0): Curves(losses=(2.0, math.inf)),
        ("NIO", 0): Curves(steps, (2.0, 1.0)),
        ("NIO", 1): Curves(steps, (2.0, 0.5)),
    }
    found = ni.Comparison([], curves=known)
    (ax,) = ni.plots.curves(found).axes
    finite = [list(line.get_ydata()) for line in ax.lines if line.get_marker() != "x"]
    assert finite == [[2.0], [2.0, 1.0], [2.0, 0.5]]
    assert sum(line.get_marker() == "x" for line in ax.lines) == 1
    (ax,) = ni.plots.curves(found, "norm").axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[1.0, 2.0, 3.0]] * 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["NIO"]


def test_a_method_has_the_same_kind_of_line_in_every_figure(digits_like):
    def network():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    methods = [ni.Kaiming(), ni.GradInit(steps=2), ni.NIO(steps=2, sub_batches=4)]
    train = lambda model: (1.0, [2.0, 1.0])  # noqa: E731
    found = ni.compare(network, digits_like, methods, [0], train=train, show=False)
    kinds = [
        {line.get_label(): line.get_linestyle() for line in ax.lines}
        for quantity in ("training", "norm", "cosine")
        for ax in ni.plots.curves(found, quantity).axes
    ]
    assert len({each["NIO"] for each in kinds}) == 1
    assert len({kinds[0][name] for name in ("Kaiming", "GradInit", "NIO")}) == 3


@pytest.mark.parametrize("span", [1.2, 3.0, 40.0, 1e4, 1e12])
def test_a_logarithmic_axis_has_a_few_plain_ticks_in_any_range(span):
    made, axes = ni.plots.figure(1)
    ax = axes[0, 0]
    ax.plot([0.03, 0.03 * span])
    log_axis(ax.yaxis)
    made.canvas.draw()
    low, high = ax.get_ylim()
    labels = [
        label.get_text() for label in ax.get_yticklabels() if low <= label.get_position()[1] <= high
    ]
    assert 2 <= len(labels) <= 8
    assert not any("$" in label for label in labels)


def test_pairs_whose_cosine_rounds_above_one_are_drawn():
    above = torch.full((3, 3), 1 + 1e-15, dtype=torch.float64)
    stats = ni.GradientStats(1.0, torch.ones(3), above, [], "sub-batch")
    _, bottom = ni.plots.batches(stats).axes
    assert max(patch.get_path().vertices[:, 1].max() for patch in bottom.patches) == 3
