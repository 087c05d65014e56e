"""``neuroinit init``."""

import pytest
import torch
from safetensors.torch import load_file

from neuroinit import cli
from neuroinit.experiments.models import build
from neuroinit.run.results.loading import load_result
from tests.report.parsed import read


def test_the_checkpoint_loads(tmp_path, capsys):
    out = tmp_path / "init.safetensors"
    arguments = ["--model", "resnet-8-nobn", "--method", "nio:steps=2", "--out", str(out)]
    assert cli.main(["init", "--data", "digits", *arguments]) == 0, capsys.readouterr().err
    model = build("resnet-8-nobn")
    model.load_state_dict(load_file(out))
    result = load_result(out.with_suffix(".json"))
    assert set(result.scales) <= set(dict(model.named_parameters()))
    assert (result.settings["method"], result.settings["steps"]) == ("NIO", 2)
    assert "resnet-8-nobn" in read(out.with_suffix(".html")).all("title")[0].words()


def test_a_model_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "def make(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes))\n"
    )
    arguments = ["init", "--model", "own.py:make", "--data", "digits", "--method", "kaiming"]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    assert load_file("init.safetensors")["1.weight"].shape == torch.Size([10, 192])


def test_files_of_another_initialization_are_removed(tmp_path, capsys):
    out = tmp_path / "init.safetensors"
    arguments = ["init", "--model", "resnet-8", "--data", "digits", "--out", str(out)]
    assert cli.main([*arguments, "--method", "nio:steps=1"]) == 0, capsys.readouterr().err
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors", ".json", ".html"}
    assert cli.main([*arguments, "--method", "kaiming"]) == 0, capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "no/x.safetensors"], "there is no folder `no`"),
        (["--out", "init.json"], "a file that ends with `.safetensors`"),
        (["--out", "taken.safetensors"], "a file that ends with `.safetensors`"),
        (["--model", "vgg", "--data", "folder:nowhere"], "There is no model `vgg`"),
        (["--model", "timm:nothing", "--data", "folder:nowhere"], "timm has no model `nothing`"),
        (["--model", "own.py:make", "--data", "folder:nowhere"], "There is no file"),
        (["--method", "nio:steps=x"], "`nio:steps=x`: Parameter `steps` should be an int"),
        (["--data", "folder:nowhere"], "There is no folder `nowhere`"),
        (["--data", "mnist"], "There is no data `mnist`"),
        (["--batch-size", "0"], "`batch_size` should be an int of at least 1"),
        (["--image-size", "-3"], "`image_size` should be an int of at least 1"),
    ],
)
def test_errors_come_before_any_file(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.safetensors").mkdir()
    assert cli.main(["init", "--model", "resnet-8", "--data", "digits", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken.safetensors"]


@pytest.mark.parametrize("place", ["initialize_", "write_tensors"])
def test_an_interrupted_init_leaves_no_checkpoint(place, tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS["init"].__globals__, place, stopped)
    out = tmp_path / "init.safetensors"
    arguments = ["--model", "resnet-8", "--data", "digits", "--method", "nio:steps=1"]
    assert cli.main(["init", *arguments, "--out", str(out)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert [path for path in tmp_path.iterdir() if path.suffix in (".safetensors", ".tmp")] == []
