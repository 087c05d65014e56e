"""``neuroinit demo``."""

import json

import pytest

from neuroinit import cli


@pytest.mark.slow
def test_both_networks_are_rescued(tmp_path, capsys):
    figure = tmp_path / "demo.png"
    assert cli.main(["demo", "--seeds", "1", "--epochs", "5", "--out", str(figure), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["start"] for row in rows] == ["Kaiming", "NIO"] * 2
    for row in rows:
        (accuracy,) = row["accuracy"]
        assert accuracy < 0.3 if row["start"] == "Kaiming" else accuracy > 0.9
    assert figure.stat().st_size > 10_000
