"""A matplotlib figure as SVG inside a page, in the page's typeface and colours."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from neuroinit.common.errors import needs_extra
from neuroinit.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
# matplotlib 3.8 writes style, weight, size and typeface as one property
SHORTHAND = re.compile(r"font: (?:(oblique|italic) )?(?:(\w+) )?([\d.]+px) [^;]*")
LINK = "{http://www.w3.org/1999/xlink}href"
# The page's style sheet has these variables twice: for light and for dark screens.
VARIABLES = {
    style.INK: "--ink",
    style.SOFT: "--soft",
    style.LINE: "--line",
    style.BEFORE: "--before",
    style.AFTER: "--after",
    **{color: f"--method-{k}" for k, color in enumerate(style.METHODS) if k > 1},
}


def check_matplotlib() -> None:
    """Say which extra to install, before any work is done, if figures cannot be drawn."""
    with needs_extra("report"):
        import matplotlib.figure  # noqa: F401


def chart(name: str, figure: Figure, title: str, description: str) -> str:
    """A figure with a caption, for a page.

    Args:
        name: Prefix of the ids in it; every chart of a page needs another one.
        figure: What to draw.
        title: What it shows, in a few words: its caption, and its name for screen readers.
        description: For screen readers; also shown below the caption.
    """
    return (
        f'<figure class="chart"><figcaption><strong>{escape(title)}</strong> '
        f"{escape(description)}</figcaption>{inline_svg(name, figure, title, description)}</figure>"
    )


def inline_svg(name: str, figure: Figure, title: str, description: str) -> str:
    """A figure as an ``svg`` element; text stays text, and colours are the page's variables.

    Args:
        name: Prefix of its ids.
        figure: What to draw.
        title: Its name for screen readers.
        description: Its description for screen readers.
    """
    root = ElementTree.fromstring(_drawn(figure))
    for part in root.findall(f"{SVG}metadata") + root.findall(f"{SVG}defs"):
        if part.find(f"{SVG}style") is not None or part.tag.endswith("metadata"):
            root.remove(part)
    _clean(root, name)
    inner = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    inner = re.sub(r' xmlns(:\w+)?="[^"]*"', "", inner).replace("ns0:", "")
    return (
        f'<svg role="img" viewBox="{root.get("viewBox")}" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>{inner}</svg>'
    )


def _drawn(figure: Figure) -> str:
    import matplotlib

    text = io.StringIO()
    # A fixed salt: the same figure has the same ids, so the same result makes the same page.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "neuroinit"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()


def _clean(root: ElementTree.Element, name: str) -> None:
    """Shorten what matplotlib wrote, in place."""
    for parent in root.iter():
        for child in list(parent):
            if child.tag == f"{SVG}path" and child.get("style") == "fill: none":
                parent.remove(child)  # an invisible background
    for element in root.iter():
        _clean_attributes(element, name)
    _flatten(root)


def _clean_attributes(element: ElementTree.Element, name: str) -> None:
    for key, value in list(element.attrib.items()):
        if key == "style":
            element.set(key, _styled(value))
        elif key == "d" or key in ("x", "y"):
            element.set(key, _rounded(value))
        elif key == LINK:
            del element.attrib[key]
            element.set("href", value.replace("#", f"#{name}-"))
        elif key == "clip-path":
            element.set(key, value.replace("#", f"#{name}-"))
        elif key == "id" and re.match(r"[a-z][0-9a-f]{10}", value):
            element.set(key, f"{name}-{value}")  # something refers to it
        elif key == "id" or (key == "transform" and value.startswith("rotate(-0 ")):
            del element.attrib[key]


def _styled(text: str) -> str:
    """A style without its typeface, and with variables for colours."""
    parts = [part.strip() for part in SHORTHAND.sub(_longhand, text).split(";")]
    kept = [part for part in parts if part and not part.startswith("font-family")]
    found = ";".join(re.sub(r":\s+", ":", part) for part in kept)
    for color, variable in VARIABLES.items():
        found = found.replace(color, f"var({variable})")
    return found


def _longhand(match: re.Match[str]) -> str:
    style, weight, size = match.groups()
    parts = [("font-style", style), ("font-weight", weight), ("font-size", size)]
    return ";".join(f"{key}:{value}" for key, value in parts if value)


def _rounded(text: str) -> str:
    """Coordinates with two digits after the point, which is a hundredth of a point."""
    short = re.sub(
        r"-?\d+\.\d+", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), text
    )
    return " ".join(short.split())


def _flatten(element: ElementTree.Element) -> None:
    """Take away groups without attributes, and write a style that all marks share only once."""
    element.tail = None
    if element.tag not in (f"{SVG}text", f"{SVG}tspan"):
        element.text = None
    found: list[ElementTree.Element] = []
    for child in list(element):
        _flatten(child)
        bare = child.tag == f"{SVG}g" and not child.attrib
        found += list(child) if bare else [child]
        element.remove(child)
    element.extend(found)
    styles = {child.get("style") for child in found}
    if len(found) > 2 and len(styles) == 1 and element.tag == f"{SVG}g":
        shared = styles.pop()
        if shared and {child.tag for child in found} == {f"{SVG}use"}:
            element.set("style", shared)
            for child in found:
                del child.attrib["style"]
