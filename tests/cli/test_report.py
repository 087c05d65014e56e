"""``neuroinit report``."""

import json

from neuroinit import cli
from neuroinit.run.results.loading import load_result
from tests.report.parsed import read


def test_a_page(saved, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(saved), "--out", str(page)]) == 0
    assert str(load_result(saved)) in capsys.readouterr().out
    assert len(read(page).all("title")[0].words()) > 0
    assert read(page).all("table")


def test_json(saved, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(saved), "--out", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
