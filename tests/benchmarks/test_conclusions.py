"""The figure of the conclusions."""

from benchmarks.conclusions import DIGITS, FRESH, draw, gains
from benchmarks.suites import SUITES


def test_gains_are_those_of_the_pages():
    fresh = gains(SUITES["fresh"], FRESH, unseen=False)
    digits = gains(SUITES["digits"], DIGITS, unseen=True)
    assert [name for name, _, _ in fresh] == ["LSUV", "nio_(..., optimizer=)"]
    page = (SUITES["fresh"].results.parents[1] / "docs/evidence/index.md").read_text()
    for _, gain, _ in (*fresh[1:], *digits[2:]):
        assert gain.low < gain.value < gain.high
    assert f"{fresh[1][1].value:.1f} points more" in page


def test_the_figure_is_written(tmp_path):
    draw(tmp_path / "conclusions.svg")
    assert "thirteen networks" in (tmp_path / "conclusions.svg").read_text()
