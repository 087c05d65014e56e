"""What a notebook shows."""

import sys

import pytest

from tests.report.parsed import Tree

KINDS = ["exploding", "comparison", "choice"]


def cells(thing):
    (table,) = Tree(thing._repr_html_()).root.all("table")
    return [[cell.words() for cell in row.all("th", "td")] for row in table.all("tr")]


@pytest.mark.parametrize("kind", KINDS)
def test_one_table_with_heads_and_no_script_or_style(request, kind):
    thing = request.getfixturevalue(kind)
    root = Tree(thing._repr_html_()).root
    assert not root.all("script", "style", "link", "img")
    head, *rows = cells(thing)
    assert rows
    assert {len(row) for row in rows} == {len(head)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_needs_no_matplotlib(request, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert request.getfixturevalue(kind)._repr_html_()


def test_the_numbers_of_a_result(exploding):
    rows = {row[0]: row[1:] for row in cells(exploding)[1:]}
    for label, key in (("GradCosine", "cosine"), ("agreement", "agreement")):
        sides = (exploding.before, exploding.after)
        assert rows[label] == [f"{getattr(s, key):.4g}" for s in sides]


def test_a_comparison_and_a_choice_have_the_rows_that_they_print(comparison, choice):
    for thing in (comparison, choice):
        head, lines = thing.rows()
        assert cells(thing) == [head, *lines]


def test_a_page_without_matplotlib_names_the_install_line(exploding, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "neuroinit\[report\]"'):
        exploding.report(tmp_path / "page.html")
