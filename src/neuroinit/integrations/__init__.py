"""neuroinit inside other people's trainers: one file per trainer, each behind its extra."""

from importlib import import_module
from types import ModuleType

_MODULES = ("lightning", "loggers", "transformers")


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'neuroinit.integrations' has no attribute {name!r}")
    return import_module(f"neuroinit.integrations.{name}")


def __dir__() -> list[str]:
    return list(_MODULES)
