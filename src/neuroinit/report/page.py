"""The page: words, tables and charts in one file that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from neuroinit.common.errors import needs_extra
from neuroinit.report import words
from neuroinit.report.words import Data

FOLDER = Path(__file__).parent
ROWS = (
    ("Loss", "loss"),
    ("GradCosine", "cosine"),
    ("Gradient norm", "norm"),
    ("Largest norm", "norm_max"),
    ("Smallest norm", "norm_min"),
    ("Largest / smallest norm", "norm_ratio"),
    ("Gradient variance", "variance"),
)


def page(data: Data, title: str = "Initialization report") -> str:
    """The page as HTML.

    Args:
        data: ``scales``, ``history``, ``before``, ``after``, ``settings``, ``engine``, ``stopped``,
            ``held_out``, ``blocked``, ``drawn`` and ``versions`` of a result, as plain
            values; ``before`` and ``after`` with their derived numbers.
        title: Heading and title of the page.
    """
    with needs_extra("report"):
        from bokeh.core.types import ID
        from bokeh.embed import json_item
        from bokeh.resources import Resources

        from neuroinit.report import charts
    items: list[Any] = []

    def drawn(figures: Sequence[Any]) -> str:
        places = [f"chart-{len(items) + i}" for i in range(len(figures))]
        items.extend(json_item(f, ID(p)) for f, p in zip(figures, places, strict=True))
        return "".join(f'<div class="chart" id="{place}"></div>' for place in places)

    sections = [
        ("Summary", _paragraphs(words.summary(data))),
        ("Before and after", _ends(data)),
        (
            "History",
            _note("Shaded: steps that began above the bound.") + drawn(charts.history(data)),
        ),
        ("Tensors", _note("Point at a dot for its name.") + drawn(charts.layers(data))),
        ("Scales", drawn(charts.scales(data))),
        ("Doing it again", f"<pre><code>{escape(words.code(data))}</code></pre>"),
        ("Settings", _settings(data)),
        ("Words", _definitions(words.GLOSSARY)),
    ]
    resources = Resources(mode="inline", components=["bokeh"], log_level="error")
    template = (FOLDER / "page.html").read_text(encoding="utf-8")
    parts = {
        "{{title}}": escape(title),
        "{{body}}": "".join(f"<section><h2>{h}</h2>{inner}</section>" for h, inner in sections),
        "{{charts}}": json.dumps(items).replace("<", "\\u003c"),
        "{{bokeh}}": resources.render_js(),
    }
    return re.sub(r"{{\w+}}", lambda match: parts[match[0]], template)


def _paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _definitions(entries: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in entries)
    return f"<dl>{inner}</dl>"


def _ends(data: Data) -> str:
    before, after = data["before"] or {}, data["after"] or {}
    rows = [
        (label, words.number(before.get(key, "not finite")), words.number(after.get(key, "none")))
        for label, key in ROWS
    ]
    return _table(("", "before", "after"), rows, "numbers")


def _settings(data: Data) -> str:
    rows = [(key, _plain(value)) for key, value in _flat(data["settings"])]
    rows += [("engine", data["engine"])]
    rows += [(f"version of {name}", version) for name, version in data["versions"].items()]
    return _table(("setting", "value"), rows)


def _flat(settings: Data, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else words.number(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "words") -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    inner = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inner}</table></div>'
