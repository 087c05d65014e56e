"""The package as a whole: public names, light imports, and docstring examples that run."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import neuroinit

SOURCE = Path(neuroinit.__file__).parent

MODULES = [m.name for m in pkgutil.walk_packages([str(SOURCE)], "neuroinit.")]


def test_the_core_imports_torch_alone():
    code = (
        "import sys, torch; before = set(sys.modules); import neuroinit;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = set(found.stdout.split()) - {"neuroinit", "torch"} - sys.stdlib_module_names
    assert extra == set()


def test_importing_neuroinit_stays_light():
    """What is for trainers, pages, figures and the command is imported where it is used."""
    code = "import sys, neuroinit; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    rooms = {"plots", "cli", "experiments", "integrations", "report"}
    assert not loaded & {f"neuroinit.{room}" for room in rooms}
    heavy = {"matplotlib", "bokeh", "lightning", "transformers", "timm", "tyro", "rich", "sklearn"}
    assert not loaded & heavy


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_dir_lists_public_names_only():
    assert set(dir(neuroinit)) == set(neuroinit.__all__)


def test_missing_extras_name_the_install_line(monkeypatch):
    from neuroinit import plots

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "neuroinit\[plots\]"'):
        plots.figure(1)
