"""Every table and figure of the paper at smoke scale, from the command to the files."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from neuroinit import cli
from neuroinit.experiments.models import build
from neuroinit.experiments.paper import costs, figures, grid
from neuroinit.experiments.paper import reproduce as reproduce_module
from neuroinit.experiments.paper.grid import Place
from neuroinit.experiments.paper.printed import PRINTED, printed
from neuroinit.experiments.paper.reproduce import NAMES, reproduce
from neuroinit.experiments.paper.settings import AUTHORS, GRIDS, OURS, SCALES, chosen
from neuroinit.experiments.paper.tables import Table
from neuroinit.experiments.training.checkpoint import Busy
from neuroinit.experiments.training.run import Outcome
from neuroinit.experiments.training.starts import learned
from neuroinit.methods.nio.presets import PRESETS


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path, capsys, monkeypatch):
    arguments = ["reproduce", name, "--scale", "smoke", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    kinds = {path.suffix for path in tmp_path.glob(f"{name}-smoke.*")}
    assert kinds == ({".md", ".tex"} if name.startswith("table") else {".png"})
    if name.startswith("table"):
        text = (tmp_path / f"{name}-smoke.md").read_text()
        absent = ("DenseNet-100", "WRN-28-10", "3")  # what only the paper's scale has
        shown = [n for (_, *where), n in PRINTED[name].items() if not set(where) & set(absent)]
        assert [number for number in shown if number not in text] == []
        assert "Ours: digits, 128 training images, 1 epoch in batches of 32." in text
        assert "Mean ± standard deviation of 2 seeds." in text
        rule = "below twice that of chance" if name == "table5" else "a loss was not finite"
        assert rule in text
        assert rule in (tmp_path / f"{name}-smoke.tex").read_text()
    else:
        assert (tmp_path / f"{name}-smoke.png").stat().st_size > 5000
    monkeypatch.setattr(
        "neuroinit.experiments.training.train.Run", None
    )  # nothing is run a second time
    assert cli.main(arguments) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", GRIDS)
def test_the_papers_runs_are_well_formed(name):
    cells = list(GRIDS[name](SCALES["paper"], None))
    for cell in cells:
        learned(cell.config.method)
        with torch.device("meta"):
            build(cell.config.model, 10)
        if name != "figure2":
            assert printed(name, cell.group, cell.row, cell.column)
    places = [(cell.group, cell.row, cell.column) for cell in cells]
    assert len(set(places)) == len(places)


def test_the_papers_settings_reach_the_method():
    cells = {(c.group, c.row, c.column): c.config for c in GRIDS["table2"](SCALES["paper"], None)}
    config = cells["w/o BN", AUTHORS, "WRN-28-10"]
    assert (config.model, config.clip, config.epochs) == ("wrn-28-10-nobn", 1.0, 500)
    assert (config.data, config.augmentation.cutout) == ("cifar100", 8)
    method = learned(config.method)
    preset = PRESETS["cifar100-wrn28-10-nobn"]
    assert {key: getattr(method, key) for key in preset} == preset
    assert cells["w/ BN", "Warmup", "ResNet-110"].warmup_epochs == 1.0
    assert cells["w/ BN", OURS, "ResNet-110"].clip == 0.0


def outcome(accuracy, diverged=False, classes=10):
    loss = None if diverged else 1.0
    return Outcome(accuracy, loss, loss, diverged, 1, 0.0, 1.0, 0.0, classes)


def test_fail_has_a_rule():
    assert outcome(0.19).failed
    assert outcome(0.9, diverged=True).failed
    assert not outcome(0.21).failed
    for classes, least in ((2, 0.75), (3, 2 / 3), (4, 0.5), (1000, 0.002)):
        assert outcome(least - 1e-4, classes=classes).failed
        assert not outcome(least + 1e-4, classes=classes).failed


def test_latex_is_escaped():
    table = Table("Title", ["a_b", "%"], [["1 ± 2", "x & y"]], "Note.")
    assert r"1 $\pm$ 2 & x \& y \\" in table.latex()
    assert r"a\_b & \%" in table.latex()
    quoted = Table("Title", ["a"], [["b"]], 'Said "fail".').latex()
    assert "Said ``fail''." in quoted


def test_an_interrupted_grid_goes_on(tmp_path, monkeypatch):
    cells = list(GRIDS["figure2"](SCALES["smoke"], None))[:2]
    done, real = [], grid.train

    def failing(config, *rest):
        if done:
            raise KeyboardInterrupt
        done.append(config)
        return real(config, *rest)

    monkeypatch.setattr(grid, "train", failing)
    with pytest.raises(KeyboardInterrupt):
        grid.run_all(cells, [0], Place(tmp_path))
    monkeypatch.setattr(grid, "train", real)
    found = grid.run_all(cells, [0], Place(tmp_path))
    assert len(found) == 2
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_run_of_another_process_comes_last(tmp_path, monkeypatch):
    cells, asked = list(GRIDS["figure2"](SCALES["smoke"], None)), []

    def shared(config, *rest):
        asked.append(config.method)
        if asked.count(cells[0].config.method) < 4 and config.method == asked[0]:
            raise Busy
        return outcome(len(asked) / 10)

    monkeypatch.setattr(grid, "train", shared)
    monkeypatch.setattr(grid, "WAIT", 0.0)
    said = []
    found = grid.run_all(cells, [0], Place(tmp_path, say=said.append))
    assert asked == [cell.config.method for cell in [*cells, *[cells[0]] * 3]]
    assert list(found) == [cell.place for cell in cells]
    assert [runs[0].accuracy for runs in found.values()] == [0.7, 0.2, 0.3, 0.4]
    assert said[3] == "waiting for other processes: 1 to come"
    assert said[4].startswith("4/4")


def test_an_interrupted_figure_goes_on(tmp_path, monkeypatch):
    size = SCALES["smoke"]
    config = replace(size.cifar, model="resnet-8-nobn", method="nio:steps=1")
    whole = figures.figure3(config, 3, 4, Place(tmp_path / "whole"))
    first = figures.figure3(config, 2, 4, Place(tmp_path / "cut"))
    (lines,) = (tmp_path / "cut").rglob("after.jsonl")
    with lines.open("a") as file:
        file.write('{"norm_ratio": 1.')  # a line that a kill cut short
    monkeypatch.setattr(figures, "optimize", None)  # the scales are read, not found again
    assert figures.figure3(config, 3, 4, Place(tmp_path / "cut")) == whole
    assert first["after"]["cosine"] == whole["after"]["cosine"][:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "table9", "scale": "smoke"}, "no name `table9`"),
        ({"name": "table1", "scale": "huge"}, "no scale `huge`"),
        ({"name": "table1", "scale": "smoke", "training": False}, "without training"),
        (
            {"name": "table1", "scale": "smoke", "only": ["Kaiser"]},
            "no row or column `Kaiser`.*MetaI",
        ),
        ({"name": "figure3", "scale": "smoke", "only": ["NIO"]}, "no rows to choose from"),
        ({"name": "table3", "scale": "smoke", "init_batch_size": 0}, "`init_batch_size` should be"),
        ({"name": "table1", "scale": "smoke", "seeds": [0, 0]}, "`--seeds 0 0`: name different"),
        ({"name": "table1", "scale": "smoke", "seeds": [-1]}, "at least 0"),
        ({"name": "figure3", "scale": "smoke", "seeds": [1]}, "`--seeds 1`: there is no training"),
        (
            {"name": "table3", "scale": "smoke", "training": False, "only": ["Kaiming", "FixUp"]},
            "none of Kaiming, FixUp takes steps",
        ),
    ],
)
def test_wrong_requests(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        reproduce(place=Place(tmp_path / "runs"), **arguments)
    assert not (tmp_path / "runs").exists()


def test_costs_need_no_training(tmp_path, capsys):
    arguments = ["reproduce", "table5", "--scale", "smoke", "--no-training", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    rows = [line[2:].split(" | ") for line in lines if line.startswith(("| Meta", "| Gr", "| NIO"))]
    assert [row[0] for row in rows] == ["MetaInit", "GradInit", AUTHORS, OURS]
    assert [row[1] for row in rows] == ["32"] * 4  # images a step
    assert [row[5] for row in rows] == ["2"] * 4  # steps
    assert all(float(row[2]) >= 0 and float(row[3]) > 0 for row in rows)
    found = {path.name for path in tmp_path.iterdir()}  # no runs, and no table of accuracies
    assert found == {"costs", "table5-smoke-costs.md", "table5-smoke-costs.tex"}


def test_one_cell_with_another_batch(tmp_path, capsys):
    arguments = ["reproduce", "table1", "--scale", "smoke", "--out", str(tmp_path), "--seeds", "0"]
    arguments += ["--only", "w/o BN", OURS, "Kaiming", "--init-batch-size", "16"]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    configs = [json.loads(path.read_text()) for path in tmp_path.rglob("config.json")]
    assert {config["model"] for config in configs} == {"resnet-8-nobn"}
    assert sorted(config["method"].partition(":")[0] for config in configs) == ["kaiming", "nio"]
    assert {config["init_batch_size"] for config in configs} == {16}
    part = "table1-smoke-only-w-o-BN-NIO-ours-Kaiming-seeds-0"
    assert {path.name for path in tmp_path.iterdir()} == {"runs", f"{part}.md", f"{part}.tex"}
    table = (tmp_path / f"{part}.md").read_text()
    assert [line.split(" | ")[1] for line in table.splitlines()[4:6]] == ["Kaiming", OURS]


def test_cells_are_chosen_by_group_row_and_column():
    cells = list(GRIDS["table1"](SCALES["paper"], None))
    assert chosen(cells, ()) == cells
    (cell,) = chosen(cells, ["w/o BN", "GradInit", "WRN-28-10"])
    assert cell.config.model == "wrn-28-10-nobn"
    assert {c.row for c in chosen(cells, ["MetaInit", "Warmup"])} == {"MetaInit", "Warmup"}


def test_swin_takes_gradinits_settings_for_imagenet():
    cells = {c.column: c.config for c in GRIDS["table5"](SCALES["paper"], None)}
    assert learned(cells["GradInit"].method).steps == 2000


def test_a_selection_of_everything_is_the_whole_table(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce_module, "run_all", lambda *arguments: {})
    monkeypatch.setattr(reproduce_module, "_table", lambda *arguments: Table("T", ["a"], [["b"]]))
    names = ["w/ BN", "w/o BN", "ResNet-8"]
    reproduce("table1", "smoke", Place(tmp_path), seeds=[1, 0], only=names)
    assert {path.name for path in tmp_path.iterdir()} == {"table1-smoke.md", "table1-smoke.tex"}


def test_costs_fetch_their_data(tmp_path, monkeypatch):
    def fetched(name, root, download, *rest):
        raise FileNotFoundError(f"{name} in {root}, download {download}")

    monkeypatch.setattr(costs, "load", fetched)
    config = replace(SCALES["small"].cifar, method="nio:steps=1")
    with pytest.raises(FileNotFoundError, match="cifar10 in here, download True"):
        costs._measure(config, Path("here"), True, 1, 1)


def _killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_measurement_that_is_killed_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "_measure", _killed)
    config = replace(SCALES["smoke"].cifar, method="nio:steps=1")
    with pytest.raises(MemoryError, match=r"was killed.*--init-batch-size"):
        costs.cost(config, Place(tmp_path))
    assert list((tmp_path / "costs").iterdir()) == []


def test_train_from_the_command_line(tmp_path, capsys):
    command = ["train", "--model", "resnet-8", "--epochs", "1", "--crop", "1"]
    command += ["--train-images", "64", "--batch-size", "32"]
    assert cli.main([*command, "--out", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 0
    assert "resnet-8 from kaiming: test accuracy" in capsys.readouterr().out


def test_init_writes_a_checkpoint_that_loads(tmp_path, capsys):
    out = tmp_path / "init.safetensors"
    arguments = ["--model", "resnet-8-nobn", "--method", "nio:steps=2", "--out", str(out)]
    assert cli.main(["init", "--data", "digits", *arguments]) == 0, capsys.readouterr().err
    model = build("resnet-8-nobn")
    model.load_state_dict(load_file(out))
    scales = json.loads(out.with_suffix(".json").read_text())["scales"]
    assert set(scales) <= set(dict(model.named_parameters()))
    assert "resnet-8-nobn" in out.with_suffix(".html").read_text()
    assert "up to 2 steps of NIO, 64 images each" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("train", ["--lr", "-1"], "Parameter `lr` should be a finite number > 0."),
        ("train", ["--crop", "-1"], "Parameter `crop` should be an int of at least 0."),
        ("train", ["--model", "swin-cifar-nobn"], "no BatchNorm"),
        ("compare", ["--base", "nio"], "Parameter `base` should be one of 'default', 'kaiming'"),
        ("compare", ["--epochs", "-1"], "Parameter `epochs` should be an int of at least 0."),
        ("compare", ["--batches", "1"], "Parameter `batches` should be an int of at least 2."),
        ("compare", ["--seeds", "0"], "Parameter `seeds` should be an int of at least 1."),
        ("compare", ["--train-images", "0"], "`train_images` should be an int of at least 1."),
    ],
)
def test_nonsense_is_refused_in_one_line(
    command, arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_init_leaves_nothing_of_another_start(tmp_path, capsys):
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
        (["--data", "folder:nowhere"], "There is no folder `nowhere`"),
        (["--data", "mnist"], "There is no data `mnist`"),
        (["--batch-size", "0"], "`batch_size` should be an int of at least 1"),
        (["--image-size", "-3"], "`image_size` should be an int of at least 1"),
    ],
)
def test_init_says_what_is_wrong_and_writes_nothing(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.safetensors").mkdir()
    assert cli.main(["init", "--model", "resnet-8", "--data", "digits", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken.safetensors"]


@pytest.mark.parametrize("place", ["start_", "checkpoint.write_tensors"])
def test_an_interrupted_init_leaves_no_checkpoint(place, tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"neuroinit.experiments.commands.{place}", stopped)
    out = tmp_path / "init.safetensors"
    arguments = ["--model", "resnet-8", "--data", "digits", "--method", "nio:steps=1"]
    assert cli.main(["init", *arguments, "--out", str(out)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert [path for path in tmp_path.iterdir() if path.suffix in (".safetensors", ".tmp")] == []


def test_compare_from_the_command_line(capsys):
    command = ["compare", "--model", "resnet-8-nobn", "--batches", "3", "--seeds", "1", "--json"]
    command += ["--methods", "default", "gradinit:steps=1", "nio:steps=1", "--train-images", "128"]
    assert cli.main([*command, "--epochs", "1"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert [record["method"] for record in found] == ["default", "gradinit:steps=1", "nio:steps=1"]
    assert all(0 <= record["score"] <= 1 for record in found)
    assert cli.main(command) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    assert [record["score"] for record in json.loads(text)] == [None] * 3
    assert "NaN" not in text
    assert cli.main(["compare", "--methods", "kaiming+nio"]) == 1
    assert "one rule or one method" in capsys.readouterr().err
