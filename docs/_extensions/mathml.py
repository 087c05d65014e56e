"""Formulas as MathML: browsers typeset it by themselves, without a script or a network."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a line."""
    writer.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def display(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    writer.body.append(f'<div class="math-display">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.TextElement, as_block: bool) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        log.warning("%s In the formula %s", error, node.astext(), location=node)
        return ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer and make it the site's."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
