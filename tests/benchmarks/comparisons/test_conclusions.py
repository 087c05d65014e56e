"""The figure of the conclusions."""

from xml.etree import ElementTree

import pytest

from benchmarks.comparisons.conclusions import NAMES, PANELS, draw, gains
from benchmarks.comparisons.unseen import PRESENT, unseen
from benchmarks.trainability.standings import BEFORE


@pytest.mark.parametrize("suite", PANELS)
def test_gains_are_differences_of_the_shares_that_train(suite):
    rows, methods = unseen(suite), {name: method for method, name in NAMES.items()}
    drawn = gains(suite)
    assert [name for name, _, _ in drawn][:2] == ["LSUV", "nio_"]
    for name, gain, count in drawn:
        method = methods[name]
        ours = PRESENT[0] if method == "LSUV" else method
        cells = [c for c in rows[ours] if c in rows[BEFORE] and c in rows[method]]
        before, after = (sum(rows[m][c]["trains"] for c in cells) for m in (BEFORE, method))
        assert count == len(cells)
        assert gain.mean == pytest.approx(100 * (after - before) / count)
        assert gain.low < gain.mean < gain.high


def test_the_figure_is_written(tmp_path):
    draw(tmp_path / "conclusions.svg")
    assert ElementTree.parse(tmp_path / "conclusions.svg").getroot().tag.endswith("svg")
