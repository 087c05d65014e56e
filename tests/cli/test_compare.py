"""``neuroinit compare``."""

import json

from neuroinit import cli


def test_json(capsys):
    command = ["compare", "--model", "resnet-8-nobn", "--batches", "3", "--seeds", "1", "--json"]
    command += ["--methods", "default", "gradinit:steps=1", "nio:steps=1", "--train-images", "128"]
    assert cli.main([*command, "--epochs", "1"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert [record["method"] for record in found] == ["default", "gradinit:steps=1", "nio:steps=1"]
    assert all(0 <= record["score"] <= 1 for record in found)


def test_a_number_that_was_not_measured_is_null(capsys):
    command = ["compare", "--model", "resnet-8-nobn", "--batches", "2", "--seeds", "1", "--json"]
    assert cli.main([*command, "--methods", "default"]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    assert [record["score"] for record in json.loads(text)] == [None]
    assert "NaN" not in text
