"""Every table and figure of the paper at the smallest size, from the command to the files."""

import json

import pytest

from neuroinit import cli
from neuroinit.experiments.paper import reproduce as module
from neuroinit.experiments.paper.grids import AUTHORS, OURS
from neuroinit.experiments.paper.published import PUBLISHED
from neuroinit.experiments.paper.reproduce import NAMES, reproduce
from neuroinit.experiments.paper.run_grid import Workspace
from neuroinit.experiments.paper.table_formats import Table

PAPER_ONLY = {"DenseNet-100", "WRN-28-10", "3"}  # columns and rows that the smallest size lacks


@pytest.mark.filterwarnings("ignore:The gradient norm is")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path, capsys, monkeypatch):
    arguments = ["reproduce", name, "--scale", "smoke", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    files = {path.suffix: path for path in tmp_path.glob(f"{name}-smoke.*")}
    assert set(files) == ({".md", ".tex"} if name.startswith("table") else {".png"})
    if name.startswith("table"):
        shown = [n for (_, *at), n in PUBLISHED[name].items() if not set(at) & PAPER_ONLY]
        text = files[".md"].read_text()
        assert [number for number in shown if number not in text] == []
        configs = [json.loads(path.read_text()) for path in tmp_path.rglob("config.json")]
        used = {(c["data"], c["train_images"], c["epochs"], c["batch_size"]) for c in configs}
        assert used == {("digits", 128, 1, 32)}
    else:
        assert files[".png"].stat().st_size > 5000
    monkeypatch.setattr("neuroinit.experiments.training.train.Run", None)
    assert cli.main(arguments) == 0, capsys.readouterr().err  # nothing is run a second time


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "table9"}, "no name `table9`"),
        ({"name": "table1", "scale": "huge"}, "no scale `huge`"),
        ({"name": "table1", "training": False}, "table1 has no part that needs no training"),
        ({"name": "table1", "only": ["Kaiser"]}, "no row or column `Kaiser`.*MetaI"),
        ({"name": "figure3", "only": ["NIO"]}, "no rows to choose from"),
        ({"name": "table4", "init_batch_size": 0}, "`init_batch_size` should be"),
        ({"name": "table1", "seeds": [0, 0]}, "`--seeds 0 0`: name different"),
        ({"name": "table1", "seeds": [-1]}, "at least 0"),
        ({"name": "figure3", "seeds": [1]}, "`--seeds 1`: nothing is trained here"),
        (
            {"name": "table4", "training": False, "only": ["Kaiming", "FixUp"]},
            "none of Kaiming, FixUp takes steps",
        ),
    ],
)
def test_wrong_requests(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        reproduce(**{"scale": "smoke", "workspace": Workspace(tmp_path / "runs"), **arguments})
    assert not (tmp_path / "runs").exists()


def test_costs_need_no_training(tmp_path, capsys):
    arguments = ["reproduce", "table5", "--scale", "smoke", "--no-training", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    rows = [line[2:].split(" | ") for line in lines if line.startswith(("| Meta", "| Gr", "| NIO"))]
    assert [row[0] for row in rows] == ["MetaInit", "GradInit", AUTHORS, OURS]
    assert [row[1] for row in rows] == ["32"] * 4  # images per step
    assert [row[5] for row in rows] == ["2", "2", "2", "1"]  # steps; ours leaves it alone
    assert all(float(row[2]) >= 0 and float(row[3]) > 0 for row in rows)
    found = {path.name for path in tmp_path.iterdir()}  # no runs, and no table of accuracies
    assert found == {"costs", "table5-smoke-costs.md", "table5-smoke-costs.tex"}


def test_a_part_of_a_table_with_another_batch_size(tmp_path, capsys):
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


def test_a_selection_of_everything_is_the_whole_table(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "run_all", lambda *arguments: {})
    monkeypatch.setattr(module, "_table", lambda *arguments: Table("T", ["a"], [["b"]]))
    names = ["w/ BN", "w/o BN", "ResNet-8"]
    reproduce("table1", "smoke", Workspace(tmp_path), seeds=[1, 0], only=names)
    assert {path.name for path in tmp_path.iterdir()} == {"table1-smoke.md", "table1-smoke.tex"}
