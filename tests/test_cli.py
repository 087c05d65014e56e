"""The command, as a user types it."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest

import neuroinit as ni
from neuroinit import cli
from neuroinit.experiments.demo import demo, plain


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "--help"])
    assert stopped.value.code == 0
    assert "neuroinit demo --out demo.png" in " ".join(capsys.readouterr().out.split())


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"neuroinit {ni.__version__}\n"


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_an_example_and_json(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Example: `neuroinit {command}" in shown
    assert "--json" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shell_completion(shell, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--tyro-print-completion", shell])
    assert not stopped.value.code
    printed = capsys.readouterr().out
    assert all(command in printed for command in cli.COMMANDS)


@pytest.fixture
def saved(small_model, digits_like, tmp_path):
    path = tmp_path / "result.json"
    ni.optimize(small_model, digits_like, method=ni.NIO(steps=2)).save(path)
    return path


def test_report(saved, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(saved), "--out", str(page)]) == 0
    assert "NIO: 2 steps" in capsys.readouterr().out
    assert "<title>Initialization report</title>" in page.read_text()


def test_report_for_machines(saved, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(saved), "--out", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nothing.json"], "`nothing.json` is no file"),
        (["report", __file__], "is no JSON file"),
        (["demo", "--seeds", "0"], "neuroinit: `--seeds` should be at least 1. Found `--seeds 0`."),
        (["demo", "--out", "nowhere/demo.png"], "there is no folder `nowhere`"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_python_runs_the_package_as_the_command():
    command = [sys.executable, "-m", "neuroinit", "report", "nothing.json"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("neuroinit: `nothing.json` is no file")


def test_debug_shows_the_traceback():
    with pytest.raises(ValueError, match="at least 1"):
        cli.main(["demo", "--seeds", "0", "--debug"])


def test_an_unknown_command_is_a_usage_error():
    with pytest.raises(SystemExit) as stopped:
        cli.main(["dance"])
    assert stopped.value.code == 2


def test_the_command_can_be_had_without_what_windows_lacks():
    code = "import sys; sys.modules['resource'] = sys.modules['fcntl'] = None; import neuroinit.cli"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_demo_of_a_start_that_is_never_finite(small_model, digits_like, tmp_path):
    found = ni.optimize(small_model, digits_like, method=ni.NIO(steps=2))
    lost = plain.Training([math.nan], 0.1)
    pairs = [
        demo.Pair(network, 0, lost, plain.Training([2.0, 1.0], 0.9), replace(found, before=None))
        for network in demo.NETWORKS
    ]
    rows = demo.rows(pairs)
    assert [row["gradient norm"] for row in rows] == [None, found.after.norm] * 2
    assert cli._table(rows, "Digits").columns[2]._cells[0] == "-"
    demo.picture(pairs, tmp_path / "demo.svg")
    assert "<svg" in (tmp_path / "demo.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["demo.svg"]


@pytest.mark.slow
def test_demo_rescues_both_networks(tmp_path, capsys):
    figure = tmp_path / "demo.png"
    assert cli.main(["demo", "--seeds", "1", "--epochs", "5", "--out", str(figure), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["start"] for row in rows] == ["Kaiming", "NIO"] * 2
    for row in rows:
        (accuracy,) = row["accuracy"]
        assert accuracy < 0.3 if row["start"] == "Kaiming" else accuracy > 0.9
    assert figure.stat().st_size > 10_000
