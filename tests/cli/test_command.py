"""The command: help, errors and exit codes."""

import subprocess
import sys
import warnings

import pytest

import neuroinit as ni
from neuroinit import cli


def help_of(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.main([*arguments, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"neuroinit {ni.__version__}\n"


def test_help_lists_the_commands_with_one_sentence_each(capsys):
    shown = help_of(capsys)
    for name, function in cli.COMMANDS.items():
        words = function.__doc__.splitlines()[0].split()
        assert " ".join([name, *words[:4]]) in " ".join(shown.split())
    assert "Example:" not in shown


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_an_example_and_json(command, capsys):
    shown = " ".join(help_of(capsys, command).split())
    assert f"Example: `neuroinit {command}" in shown
    assert "--json" in shown


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_help_does_not_break_lines_early(command, capsys, monkeypatch):
    """tyro keeps line breaks of docstrings; in a wide terminal each option needs one line."""
    monkeypatch.setenv("COLUMNS", "400")
    options = [line for line in help_of(capsys, command).splitlines() if line.startswith("│")]
    texts = [line.strip("│ ") for line in options]
    assert [
        t for t in texts if not t.startswith(("-", "PATH", "{table1", "─", "How", "Model"))
    ] == []


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(capsys, monkeypatch):
    def report() -> None:
        """A command that warns."""
        warnings.warn("more steps", stacklevel=1)

    monkeypatch.setitem(cli.COMMANDS, "report", report)
    assert cli.main(["report"]) == 0
    assert capsys.readouterr().err == "neuroinit: warning: more steps\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (AssertionError(), "AssertionError"),
        (KeyError("weight"), "KeyError 'weight'"),
        (RuntimeError("no size\n\tmismatch"), "no size mismatch"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_line(error, line, capsys, monkeypatch):
    def report() -> None:
        """A command that fails."""
        raise error

    monkeypatch.setitem(cli.COMMANDS, "report", report)
    assert cli.main(["report"]) == 1
    assert capsys.readouterr().err == f"neuroinit: {line}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shell_completion(shell, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--tyro-print-completion", shell])
    assert not stopped.value.code
    printed = capsys.readouterr().out
    assert all(command in printed for command in cli.COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nothing.json"], "neuroinit: There is no file `nothing.json`"),
        (["report", __file__], "is no result, or is damaged: it is no JSON"),
        (["demo", "--seeds", "0"], "neuroinit: Parameter `seeds` should be an int of at least 1."),
        (["demo", "--out", "nowhere/demo.png"], "there is no folder `nowhere`"),
        (["train", "--lr", "-1"], "Parameter `lr` should be a finite number > 0."),
        (["train", "--crop", "-1"], "Parameter `crop` should be an int of at least 0."),
        (["train", "--model", "swin-cifar-nobn"], "no BatchNorm"),
        (["train", "--method", "nio:steps=x"], "`nio:steps=x`: Parameter `steps` should be an int"),
        (["train", "--model", "my.py:make"], "There is no file"),
        (["compare", "--methods", "nio:steps=x"], "`nio:steps=x`: Parameter `steps` should be"),
        (["compare", "--methods", "kaiming+nio"], "name one scheme or one method"),
        (["compare", "--base", "nio"], "Parameter `base` should be one of 'default', 'kaiming'"),
        (["compare", "--epochs", "-1"], "Parameter `epochs` should be an int of at least 0."),
        (["compare", "--batches", "1"], "Parameter `batches` should be an int of at least 2."),
        (["compare", "--seeds", "0"], "Parameter `seeds` should be an int of at least 1."),
        (["compare", "--train-images", "0"], "`train_images` should be an int of at least 1."),
    ],
)
def test_errors_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_python_runs_the_package_as_the_command():
    command = [sys.executable, "-m", "neuroinit", "report", "nothing.json"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("neuroinit: There is no file `nothing.json`")


def test_debug_raises():
    with pytest.raises(ValueError, match="at least 1"):
        cli.main(["demo", "--seeds", "0", "--debug"])


def test_an_unknown_command_is_a_usage_error():
    with pytest.raises(SystemExit) as stopped:
        cli.main(["dance"])
    assert stopped.value.code == 2


def test_the_command_can_be_imported_without_what_windows_lacks():
    code = "import sys; sys.modules['resource'] = sys.modules['fcntl'] = None; import neuroinit.cli"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
