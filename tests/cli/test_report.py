"""``neuroinit report``."""

import json

from neuroinit import cli


def test_a_page(saved, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(saved), "--out", str(page)]) == 0
    assert "NIO: 2 steps" in capsys.readouterr().out
    assert "<title>Initialization report</title>" in page.read_text()


def test_json(saved, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(saved), "--out", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
