"""The text of tables."""

from neuroinit.experiments.paper.grids import Cell
from neuroinit.experiments.paper.table_formats import Table
from neuroinit.experiments.paper.tables import accuracy, swin_table
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.outcome import Outcome


def outcome(accuracy, diverged=False):
    loss = None if diverged else 1.0
    return Outcome(accuracy, loss, loss, diverged, 1, 0.0, 1.0, 0.0, 10)


def test_latex_is_escaped():
    table = Table("Title", ["a_b", "%"], [["1 ± 2", "x & y"]], "Note.")
    assert r"1 $\pm$ 2 & x \& y \\" in table.latex()
    assert r"a\_b & \%" in table.latex()
    quoted = Table("Title", ["a"], [["b"]], 'Said "fail".').latex()
    assert "Said ``fail''." in quoted


def test_diverged_runs_are_counted():
    assert accuracy([outcome(0.5), outcome(0.7)]) == "60.0 ± 14.1"
    assert accuracy([outcome(0.1, diverged=True)]) == "10.0 (1 diverged)"


def test_failed_runs_do_not_count_in_the_mean():
    cells = [Cell("", "w/ warmup", column, Config()) for column in ("Kaiming", "TruncNormal")]
    found = {
        cells[0].position: [outcome(0.1, diverged=True), outcome(0.8)],
        cells[1].position: [outcome(0.15), outcome(0.19)],
    }
    rows = swin_table("T", cells, found).rows
    assert rows[0] == ["w/ warmup", "fail 1 of 2; 80.0", "fail 2 of 2"]
    assert rows[1] == ["w/ warmup: mean training loss", "diverged 1 of 2", "1.000 ± 0.000"]
    assert rows[2] == ["w/ warmup: paper, Swin-T", "79.4", "81.3"]
