"""The package as a whole: public names, light imports, and docstring examples that run."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import neuroinit

SOURCE = Path(neuroinit.__file__).parent
MODULES = [m.name for m in pkgutil.walk_packages([str(SOURCE)], "neuroinit.")]
PUBLIC = [name for name in neuroinit.__all__ if name != "__version__"]


@pytest.fixture(scope="module")
def loaded():
    """What a fresh process has loaded after `import neuroinit`, and what after `import torch`."""
    code = "import sys, torch; print(*sys.modules); import neuroinit; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = (set(line.split()) for line in found.stdout.splitlines())
    return before, after


def test_the_core_imports_torch_alone(loaded):
    before, after = loaded
    roots = {module.partition(".")[0] for module in after - before}
    assert roots - {"neuroinit", "torch"} - sys.stdlib_module_names == set()


def test_importing_neuroinit_stays_light(loaded):
    """What is for trainers, pages, figures and the command is imported where it is used."""
    _, after = loaded
    folders = {"plots", "cli", "experiments", "integrations", "report"}
    assert not after & {f"neuroinit.{folder}" for folder in folders}
    heavy = {"matplotlib", "lightning", "transformers", "timm", "tyro", "rich", "sklearn"}
    assert not after & heavy


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_dir_lists_public_names_only():
    assert set(dir(neuroinit)) == set(neuroinit.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_documentation_of_their_own(name):
    """What a class merely inherits says nothing about it."""
    found = getattr(neuroinit, name)
    if callable(found) or inspect.ismodule(found):
        assert (found.__doc__ or "").strip()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("neuroinit.plots", "history"),
        ("neuroinit.distributed", "alone"),
        ("neuroinit.integrations.lightning", "InitCallback"),
        ("neuroinit.integrations.transformers", "InitCallback"),
        ("neuroinit.methods.rules", "HeldNorm"),
    ],
)
def test_documented_modules(module, name):
    """Names that are imported from a module of their own keep working."""
    assert callable(getattr(importlib.import_module(module), name))


def test_missing_extras_name_the_install_line(monkeypatch):
    from neuroinit import plots

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "neuroinit\[plots\]"'):
        plots.figure(1)
