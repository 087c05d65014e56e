"""The figure of the conclusions."""

import pytest

from benchmarks.comparisons.conclusions import FRESH, LETTERS, draw, gains
from benchmarks.comparisons.gains import found
from benchmarks.trainability.standings import BEFORE
from benchmarks.trainability.suites import SUITES


@pytest.mark.parametrize(("name", "methods"), [("letters", LETTERS), ("fresh", FRESH)])
def test_gains_are_differences_of_the_shares_that_train(name, methods):
    suite = SUITES[name]
    rows, drawn = found(suite), gains(suite, methods, unseen=False)
    assert [shown for shown, _, _ in drawn] == list(methods.values())
    ours = list(methods)[1]
    for (_, gain, count), method in zip(drawn, methods, strict=True):
        cells = [c for c in rows[ours] if c in rows[BEFORE] and c in rows[method]]
        before, after = (
            sum(rows[m][c]["accuracy"] >= suite.good for c in cells) for m in (BEFORE, method)
        )
        assert count == len(cells)
        assert gain.value == pytest.approx(100 * (after - before) / count)
        assert gain.low < gain.value < gain.high


def test_the_figure_is_written(tmp_path):
    draw(tmp_path / "conclusions.svg")
    assert "thirteen networks" in (tmp_path / "conclusions.svg").read_text()
