"""Models from a Python file of the user: ``FILE.py:FUNCTION``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from torch import nn

CLASSES = ("classes", "num_classes")  # names of the argument that gets the number of classes


def model_from_file(file: str, function: str) -> Callable[[int], nn.Module]:
    """Load the function that makes a model from a file.

    Args:
        file: Path of a Python file. It is executed once, and may import its neighbours.
        function: Name of a function or a class in it. Its argument ``classes`` or ``num_classes``
            gets the number of classes; without one, it is called without arguments.

    Returns:
        A function of the number of classes that makes the model.

    Raises:
        ValueError: There is no such file or function, the file cannot be executed, or the function
            needs other arguments. The model function raises it if the result is not a module.
    """
    name = f"{file}:{function}"
    make = getattr(_module(Path(file).expanduser().resolve()), function, None)
    if not callable(make):
        raise ValueError(f"`{name}`: there is no function `{function}` in `{file}`.")
    keyword = _classes_keyword(make, name)

    def model(classes: int) -> nn.Module:
        made = make(**{keyword: classes}) if keyword else make()
        if not isinstance(made, nn.Module):
            raise ValueError(f"`{name}` should return an `nn.Module`. Found {type(made).__name__}.")
        return made

    return model


def _classes_keyword(make: Callable[..., object], name: str) -> str | None:
    """The argument of ``make`` that gets the number of classes."""
    parameters = inspect.signature(make).parameters
    keyword = next((key for key in CLASSES if key in parameters), None)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for key, parameter in parameters.items():
        if key != keyword and parameter.default is parameter.empty and parameter.kind not in kinds:
            raise ValueError(
                f"`{name}` needs an argument `{key}`. Give it a default value: the command passes "
                "the number of classes as `classes` or `num_classes`, and nothing else."
            )
    return keyword


@lru_cache
def _module(path: Path) -> ModuleType:
    """Execute a file as a module."""
    if not path.is_file():
        raise ValueError(f"There is no file `{path}` to load a model from.")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for imports of files beside it
    spec = importlib.util.spec_from_file_location(str(path), path)
    if spec is None or spec.loader is None:
        raise ValueError(f"`{path}` is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise ValueError(f"`{path}` raised {type(error).__name__}: {error}") from error
    return module
