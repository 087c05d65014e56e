"""The package as a whole: public names, light imports, and examples that run."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import neuroinit

ROOT = Path(__file__).parents[1]
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
    heavy = {"matplotlib", "lightning", "transformers", "timm", "tyro", "rich", "sklearn"}
    assert not loaded & heavy


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",  # Lightning with the newest torch
    "ignore:.*does not have many workers",
    "ignore:.*is smaller than the logging interval",
)
@pytest.mark.parametrize("page", ["README.md", "docs/one-page.md", "docs/trainers.md"])
def test_examples_in_documents(page, tmp_path, monkeypatch):
    """All python blocks of a page run, one after the other, as one script."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "__main__"})


def test_dir_lists_public_names_only():
    assert set(dir(neuroinit)) == set(neuroinit.__all__)


def test_every_public_name_is_documented():
    page = (ROOT / "docs/one-page.md").read_text()
    names = [n for n in neuroinit.__all__ if n != "__version__"]
    missing = [n for n in names if not re.search(rf"\b{n}\b", page)]
    assert missing == []


def test_missing_extras_name_the_install_line(monkeypatch):
    from neuroinit import plots

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "neuroinit\[plots\]"'):
        plots.figure(1)
