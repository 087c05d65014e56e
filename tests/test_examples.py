"""Every example runs, in a short form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
# torchvision has to be helped where its compiled operators are missing, as in conftest.py
START = (
    "import runpy, sys; from neuroinit.experiments.vision import torchvision; torchvision();"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


def run(arguments, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", START, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_there_are_examples():
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts(script, tmp_path):
    assert run([str(EXAMPLES / script), "--quick"], tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing is left lying about


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
