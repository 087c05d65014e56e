"""Figures inside a page: nothing is lost, nothing collides, colours follow the page."""

import re

import pytest

import neuroinit as ni
from neuroinit.report.html import Column, number, sortable_table
from neuroinit.report.svg import VARIABLES, inline_svg
from tests.report.parsed import Tree

pytest.importorskip("matplotlib", reason='needs pip install "neuroinit[report]"')


def drawn(figure, name="name"):
    (svg,) = Tree(inline_svg(name, figure, "title", "description")).root.all("svg")
    return svg


def test_all_text_and_all_points_are_there(exploding):
    figure = ni.plots.layers(exploding)
    svg = drawn(figure)
    texts = {text.words() for text in svg.all("text")}
    for ax in figure.axes:
        assert ax.get_ylabel() in texts
    points = [line for ax in figure.axes for line in ax.lines]
    assert len(svg.all("use")) >= sum(len(line.get_xdata()) for line in points)


class Drawn:
    """In place of a figure: writes an SVG with a text of this style."""

    def __init__(self, style):
        self.style = style

    def savefig(self, file, **options):
        root = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">'
        file.write(f'{root}<text style="{self.style}">a</text></svg>')


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("font-size: 10px; font-family: 'A', sans-serif; text-anchor: end", "font-size:10px"),
        ("font: 10px 'A', sans-serif; text-anchor: end", "font-size:10px"),  # matplotlib 3.8
        ("font: oblique 8.4px 'A'; text-anchor: end", "font-style:oblique;font-size:8.4px"),
        ("font: bold 12px 'A'; text-anchor: end", "font-weight:bold;font-size:12px"),
    ],
)
def test_text_takes_the_typeface_of_the_page(style, expected):
    (text,) = drawn(Drawn(style)).all("text")
    assert text.attributes["style"] == f"{expected};text-anchor:end"


def test_two_charts_share_no_id(exploding):
    def ids(name):
        text = inline_svg(name, ni.plots.history(exploding), "title", "description")
        return set(re.findall(r'\bid="([^"]+)"', text)), set(re.findall(r'[("]#([^")]+)', text))

    (first, used), (second, _) = ids("a"), ids("b")
    assert used
    assert used <= first
    assert not first & second


def test_no_colour_is_fixed_so_that_dark_pages_can_change_it(exploding, comparison):
    for figure in (ni.plots.batches(exploding), ni.plots.curves(comparison)):
        text = inline_svg("name", figure, "title", "description")
        values = set(re.findall(r"\b(?:fill|stroke):\s*([^;\"]+)", text)) - {"none"}
        assert values
        assert values <= {f"var({variable})" for variable in VARIABLES.values()}


def test_titles_are_escaped(exploding):
    text = inline_svg("name", ni.plots.scales(exploding), "a < b", "c & d")
    (svg,) = Tree(text).root.all("svg")
    assert [part.words() for part in svg.all("title", "desc")] == ["a < b", "c & d"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12"),
        (1234567, "1,234,567"),
        (0.0, "0"),
        (-0.25, "-0.25"),
        (9999.0, "9999"),
        (12345.0, "1.234·10⁴"),
        (1e-7, "10⁻⁷"),
        (float("inf"), "∞"),
        (True, "True"),
        (None, "none"),
    ],
)
def test_numbers_for_people(value, text):
    assert number(value) == text


def test_a_short_table_has_no_controls_and_no_empty_column():
    def made(rows):
        columns = [
            Column("Name", [f"r{k}" for k in range(rows)], filtered=""),
            Column("Group", ["g"] * rows, filtered="all"),
            Column("Value", [float(k) for k in range(rows)]),
            Column("Nothing", [float("nan")] * rows),
        ]
        return Tree(sortable_table("t", "caption", columns, "rows")).root

    assert not made(3).all("input", "select")
    assert len(made(20).all("input", "select")) == 2
    assert len(made(3).all("thead")[0].all("th")) == 3
