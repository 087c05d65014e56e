"""``neuroinit train``."""

import json

from neuroinit import cli

MODEL = """
from torch import nn

def make(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, classes))
"""


def test_a_run_and_its_result_again(tmp_path, capsys):
    command = ["train", "--model", "resnet-8", "--epochs", "1", "--crop", "1", "--no-flip"]
    command += ["--train-images", "64", "--batch-size", "32"]
    assert cli.main([*command, "--out", str(tmp_path / "run"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["steps"] == 2
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["augmentation"]["crop"], config["augmentation"]["flip"]) == (1, False)
    assert cli.main([*command, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert f"{100 * first['accuracy']:.1f} %" in shown
    assert f"{first['train_loss']:.3f}" in shown


def test_a_model_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(MODEL)
    command = ["train", "--model", "own.py:make", "--method", "nio:steps=2", "--epochs", "3"]
    assert cli.main([*command, "--json"]) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.6
