"""Every example runs, in a short form."""

import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_there_are_examples():
    assert len(SCRIPTS) >= 8


@pytest.mark.filterwarnings("ignore")  # trainers warn of tiny data
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--quick"])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []  # no file stays behind


@pytest.mark.parametrize("notebook", sorted(p.name for p in EXAMPLES.glob("*.ipynb")))
def test_notebooks(notebook, tmp_path, monkeypatch):
    """The code cells, one after the other; magics would be syntax errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEUROINIT_QUICK", "1")
    cells = json.loads((EXAMPLES / notebook).read_text())["cells"]
    scope = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), notebook, "exec"), scope)
    assert (tmp_path / "report.html").exists()
