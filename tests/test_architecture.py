"""The package as a whole: public names, light imports, and docstring examples that run."""

import doctest
import importlib
import pkgutil
import re
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
    """Everything but the version is imported where it is first used."""
    _, after = loaded
    inside = {module for module in after if module.startswith("neuroinit.")}
    assert inside == {"neuroinit.version"}
    heavy = {"matplotlib", "lightning", "transformers", "timm", "tyro", "rich", "sklearn"}
    assert not after & heavy


def test_loggers_replace_nothing_in_torch():
    """Only the callbacks of trainers replace `load_state_dict`."""
    code = """
from torch.nn import Module
own = Module.load_state_dict
import neuroinit.integrations.loggers
print(Module.load_state_dict is own)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_dir_lists_public_names_only():
    modules = {"distributed", "integrations", "methods", "plots"}
    assert set(dir(neuroinit)) == {*neuroinit.__all__, *modules}
    for name in ("distributed", "plots"):
        module = importlib.import_module(f"neuroinit.{name}")
        assert dir(module) == sorted(module.__all__)
    assert dir(neuroinit.integrations) == ["lightning", "loggers", "transformers"]
    assert callable(neuroinit.integrations.loggers.tensorboard)


def test_type_checkers_see_the_names_that_are_there():
    """The imports for type checkers, and the table for all others."""
    text = (SOURCE / "__init__.py").read_text()
    seen = re.findall(r"from ([\w.]+) import (\w+) as \2\n", text)
    assert {name for _, name in seen} == {*neuroinit.__all__}
    for module, name in seen:
        assert getattr(neuroinit, name) is getattr(importlib.import_module(module), name)


def test_all_public_names_and_no_others_can_be_imported():
    found = {}
    exec("from neuroinit import *", found)
    assert found.keys() - {"__builtins__"} == set(neuroinit.__all__)
    with pytest.raises(ImportError, match="cannot import name 'nio'"):
        exec("from neuroinit import nio")
    with pytest.raises(AttributeError, match="module 'neuroinit' has no attribute 'nio'"):
        _ = neuroinit.nio


@pytest.mark.parametrize("name", [n for n in PUBLIC if not n.endswith("PRESETS")])
def test_public_names_have_documentation_of_their_own(name):
    """What a class merely inherits says nothing about it."""
    assert (getattr(neuroinit, name).__doc__ or "").strip()


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
