"""The API reference: every public name is in it with an example, and annotations link to it."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import neuroinit

OBJECTIVES = "neuroinit.methods.rules."  # functions of one line, with one example for all
NOT_OBJECTS = {"__version__", "plots"}  # a string, and a module with a page of its own


def public_link(
    app: Sphinx, env: BuildEnvironment, node: Any, content: nodes.TextElement
) -> nodes.Node | None:
    """Annotations name the module that defines a class; the reference has the public name."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in neuroinit.__all__:
        return None
    python = env.domains.python_domain
    return python.resolve_xref(
        env, node["refdoc"], app.builder, "obj", f"neuroinit.{name}", node, content
    )


def check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    """A public name without an entry is a warning, and so an error."""
    documented = env.domains.python_domain.objects
    for name in neuroinit.__all__:
        if name not in NOT_OBJECTS and f"neuroinit.{name}" not in documented:
            logging.getLogger(__name__).warning("`neuroinit.%s` is not in the API reference", name)


def check_example(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """A public class or function without an example is a warning, and so an error."""
    shared = name.startswith(OBJECTIVES)
    if what in ("class", "function") and not shared and not any(">>>" in line for line in lines):
        logging.getLogger(__name__).warning("`%s` has no example in its docstring", name)


def readable_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: Any
) -> tuple[str | None, Any]:
    """Defaults that are functions by their names; without this a signature cannot be parsed."""
    return signature and re.sub(r"<function (\w+)[^>]*>", r"\1", signature), returned


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all of them to the build."""
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("autodoc-process-docstring", check_example)
    app.connect("missing-reference", public_link)
    app.connect("env-check-consistency", check_complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
