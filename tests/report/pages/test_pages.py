"""What is on the pages: numbers, structure, and what a screen reader needs."""

import math
import re

import pytest

import neuroinit as ni
from tests.report.conftest import make_result
from tests.report.parsed import read

pytest.importorskip("matplotlib", reason='needs pip install "neuroinit[report]"')
KINDS = ["result", "comparison", "choice"]


def table_of(page, name):
    """Rows of the sortable table whose search field or first head has this name."""
    for table in page.all("table"):
        heads = [head.words().strip() for head in table.all("thead")[0].all("th")]
        if heads[0] == name:
            return heads, [row.all("th", "td") for row in table.all("tbody")[0].all("tr")]
    raise AssertionError(name)


def values(cells):
    return [float(cell["data-value"] or "nan") for cell in cells if "data-value" in cell.attributes]


@pytest.mark.parametrize("kind", KINDS)
def test_one_small_file_that_fetches_nothing(pages, kind):
    page = read(pages[kind])
    fetched = [
        e[key] for e in page.all("link", "script", "img", "a", "use") for key in ("src", "href")
    ]
    assert all(address.startswith(("data:", "#")) for address in fetched if address)
    assert pages[kind].stat().st_size < 400_000
    assert "http" not in pages[kind].read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_unique_and_every_reference_has_its_target(pages, kind):
    text, page = pages[kind].read_text(), read(pages[kind])

    def every(element):
        return [element, *(e for child in element.children for e in every(child))]

    ids = [element["id"] for element in every(page) if element["id"]]
    assert len(ids) == len(set(ids))
    named = [e[key] for e in every(page) for key in ("aria-labelledby", "for") if e[key]]
    wanted = {name for names in named for name in names.split()}
    wanted |= set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    assert wanted <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_charts_have_a_name_and_a_description(pages, kind):
    page = read(pages[kind])
    charts = [svg for svg in page.all("svg") if svg["aria-hidden"] is None]
    assert charts
    for svg in charts:
        assert svg["role"] == "img"
        described = {part["id"]: part.words().strip() for part in svg.all("title", "desc")}
        assert all(described[name] for name in svg["aria-labelledby"].split())
        assert not re.search(
            r"#[0-9a-f]{6}", str([e["style"] for e in svg.all("path", "g", "text")])
        )


@pytest.mark.parametrize("kind", KINDS)
def test_headings_tables_and_fields_are_labelled(pages, kind):
    page = read(pages[kind])
    assert page.all("html")[0]["lang"] == "en"
    assert [len(page.all(tag)) for tag in ("h1", "main", "nav", "title")[:3]] == [1, 1, 1]
    skip = page.all("a")[0]
    assert skip["href"] == f"#{page.all('main')[0]['id']}"
    labels = {label["for"] for label in page.all("label")}
    assert {field["id"] for field in page.all("input", "select")} == labels
    for table in page.all("table"):
        assert table.all("caption")[0].words()
        assert {head["scope"] for head in table.all("thead")[0].all("th")} == {"col"}
        assert all(row.all("th")[0]["scope"] == "row" for row in table.all("tbody")[0].all("tr"))


def test_the_table_has_every_tensor_with_its_numbers(exploding, pages):
    heads, rows = table_of(read(pages["result"]), "Tensor")
    assert len(heads) == 8
    assert [row[0].words() for row in rows] == [layer.name for layer in exploding.after.layers]
    for row, old, new in zip(rows, exploding.before.layers, exploding.after.layers, strict=True):
        scale = exploding.scales[new.name]
        wanted = [scale, old.norm, new.norm, old.cosine, new.cosine]
        assert values(row) == pytest.approx(wanted, rel=1e-4)
        assert row[2].words() == ("bias" if new.name.endswith("bias") else "weight")


def test_model_parameters_and_batches_are_named(exploding, pages):
    facts = dict(
        zip(
            [e.words() for e in read(pages["result"]).all("header")[0].all("dt")],
            [e.words() for e in read(pages["result"]).all("header")[0].all("dd")],
            strict=True,
        )
    )
    assert len(facts) == 5
    assert facts["Model"] == "Sequential"
    assert facts["Parameters"] == f"{exploding.about.parameters:,}"
    assert {str(len(exploding.history)), "32"} <= set(re.findall(r"\d+", facts["Batches"]))


def test_a_result_without_these_fields_has_a_page(exploding, tmp_path):
    old = ni.Result(**{**vars(exploding), "about": None})
    old.report(tmp_path / "old.html")
    assert len(read(tmp_path / "old.html").all("header")[0].all("dt")) == 2


@pytest.mark.parametrize("missing", ["before", "after", "both", "history", "everything"])
def test_results_with_gaps(exploding, tmp_path, missing):
    changes = {
        "before": {"before": None},
        "after": {"after": None},
        "both": {"before": None, "after": None},
        "history": {"history": [], "scales": {}},
        "everything": {"before": None, "after": None, "history": [], "scales": {}},
    }
    partial = ni.Result(**{**vars(exploding), **changes[missing]})
    partial.report(tmp_path / "partial.html")
    page = read(tmp_path / "partial.html")
    charts = [svg for svg in page.all("svg") if svg["aria-hidden"] is None]
    assert (
        len(charts) == {"before": 4, "after": 4, "both": 2, "history": 2, "everything": 0}[missing]
    )
    assert partial._repr_html_()


@pytest.mark.parametrize("method", [ni.Kaiming(), ni.LSUV(), ni.GradInit(steps=2)], ids=repr)
def test_other_methods_have_a_page(method, tmp_path):
    result = make_result(method=method)
    result.report(tmp_path / "page.html")
    heads, rows = table_of(read(tmp_path / "page.html"), "Tensor")
    assert len(rows) == 10
    assert len(heads) == len(rows[0])
    known = zip(*map(values, rows), strict=True)
    assert all(any(math.isfinite(value) for value in column) for column in known)


def test_names_and_titles_are_escaped(exploding, tmp_path):
    scales = {"<script>alert(1)</script>": 0.5, '"&{{body}}': 2.0}
    odd = ni.Result(**{**vars(exploding), "scales": scales, "before": None, "after": None})
    odd.report(tmp_path / "odd.html", title="a <b> & {{body}}")
    page = read(tmp_path / "odd.html")
    assert page.all("h1")[0].words() == "a <b> & {{body}}"
    assert [row[0].words() for row in table_of(page, "Tensor")[1]] == list(scales)
    assert len(page.all("script")) == 1
    assert "<script>alert" not in odd._repr_html_()


def test_a_saved_result_makes_the_same_page(exploding, pages, tmp_path):
    exploding.save(tmp_path / "result.json")
    ni.load_result(tmp_path / "result.json").report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == pages["result"].read_text()


def test_a_missing_folder_is_one_clear_error(exploding, tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder `.*nowhere`"):
        exploding.report(tmp_path / "nowhere" / "report.html")


def test_the_code_on_the_page_repeats_the_run(exploding):
    from neuroinit.report.pages.code import code

    def repeated(method):
        result = ni.Result(**{**vars(exploding), "settings": method.settings()})
        scope = {}
        exec(code(result).split("result =")[0], scope)
        return scope["method"]

    for method in (
        ni.NIO(),
        ni.NIO(steps=7, gamma=2.0, exclude=("*bias",), sub_batches="samples"),
        ni.NIO.paper(steps=3),
        ni.NIO.reference(gamma=1.5),
        ni.GradInit(steps=4),
    ):
        assert repeated(method) == method
    for method in (ni.MetaInit(), ni.GradInit.reference()):  # a function is named in a comment
        assert isinstance(repeated(method), type(method))
    scope = {}
    exec(code(exploding).split("result =")[0], scope)  # with what the run has found
    assert scope["method"] == ni.NIO(steps=20)


def test_a_comparison_has_all_methods_runs_and_curves(comparison, pages):
    page = read(pages["comparison"])
    _, methods = table_of(page, "Method")
    assert [row[0].words() for row in methods] == comparison.methods
    norms = [mean for mean, _ in comparison.summary("norm").values()]
    assert [values(row)[2] for row in methods] == pytest.approx(norms, rel=1e-4)
    _, runs = table_of(page, "Run")
    assert [values(row)[2] for row in runs] == pytest.approx([r.norm for r in comparison], rel=1e-4)
    names = {svg["aria-labelledby"].split("-t ")[0] for svg in page.all("svg") if svg["role"]}
    curves = {f"curve-{key}" for key in ("training", "norm", "cosine", "loss")}
    assert (
        curves | {f"number-{key}" for key in ("score", "loss", "norm", "cosine", "cost")} == names
    )


def test_a_comparison_without_training_has_no_such_curve(comparison, tmp_path):
    silent = ni.Comparison(list(comparison)[:2], "start")
    silent.report(tmp_path / "silent.html")
    page = read(tmp_path / "silent.html")
    assert not any("curve" in (svg["aria-labelledby"] or "") for svg in page.all("svg"))


def test_the_choice_has_every_candidate(choice, pages):
    _, rows = table_of(read(pages["choice"]), "Candidate")
    assert [row[0].words() for row in rows] == [record.name for record in choice.candidates]
    assert [values(row)[0] for row in rows] == pytest.approx(
        [record.scores[0] for record in choice.candidates], rel=1e-4
    )


def test_a_model_that_was_left_alone_is_shown_once(small_model, digits_like, tmp_path):
    result = ni.optimize(small_model, digits_like, progress=False)
    assert set(result.scales.values()) == {1.0}
    result.report(tmp_path / "report.html")
    words = read(tmp_path / "report.html").words()
    assert "1 batch of" in words
    assert "Nothing was changed, so both columns are the same." in words
    assert "Every step." not in words  # one step is no curve
    assert "went from" not in words
