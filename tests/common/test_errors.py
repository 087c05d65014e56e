"""The message for a package that is not installed, and errors that are raised unchanged."""

import re
import tomllib
from pathlib import Path

import pytest

from neuroinit.common.errors import PACKAGES, needs_extra

IMPORTED_AS = {"scikit-learn": "sklearn"}


def packages_of(extra, extras):
    """The packages of an extra, those of the extras that it contains included."""
    found = set()
    for requirement in extras[extra]:
        name, inner = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
        if name == "neuroinit":
            found |= {p for part in inner.split(",") for p in packages_of(part, extras)}
        else:
            found.add(IMPORTED_AS.get(name, name))
    return found


def test_the_packages_are_those_of_the_project():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    assert {extra: set(names) for extra, names in PACKAGES.items()} == {
        extra: packages_of(extra, extras) for extra in extras.keys() - {"docs", "dev"}
    }


def test_a_missing_package_names_its_extra():
    with (
        pytest.raises(ModuleNotFoundError, match=r'`accelerate`.*"neuroinit\[transformers\]"'),
        needs_extra("transformers"),
    ):
        raise ModuleNotFoundError("No module named 'accelerate'", name="accelerate")


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("Could not import module 'Trainer'"),  # a package that does not fit
        ModuleNotFoundError("No module named 'sentencepiece'", name="sentencepiece"),
        RuntimeError("operator torchvision::nms does not exist"),
    ],
    ids=lambda error: str(error.args[0]),
)
def test_other_errors_are_raised_unchanged(error):
    text = re.escape(str(error))
    with pytest.raises(type(error), match=text) as found, needs_extra("transformers"):
        raise error
    assert found.value is error
