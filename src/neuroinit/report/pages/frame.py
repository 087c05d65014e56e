"""The frame of every page: head, style, verdict, sections and script in one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from html import escape
from pathlib import Path

from neuroinit.report import verdict as verdicts
from neuroinit.report.html import definitions
from neuroinit.run.results.about import About

FOLDER = Path(__file__).parent
# Each status has a shape of its own, so that nobody has to tell colours apart.
MARKS = {
    verdicts.REPAIRED: '<circle cx="12" cy="12" r="11"/><path d="M6.5 12.5l3.8 3.8 7.2-8"/>',
    verdicts.USABLE: '<circle cx="12" cy="12" r="11"/><path d="M7 9.5h10M7 14.5h10"/>',
    verdicts.UNSOLVED: '<path class="area" d="M12 1.5L23.5 22H.5z"/><path d="M12 8.5v7M12 18v1"/>',
    verdicts.LEFT: '<rect x="1" y="1" width="22" height="22"/><path d="M6 12h12"/>',
    verdicts.OPEN: '<rect x="1" y="1" width="22" height="22"/><path d="M12 11v6.5M12 6.5v.5"/>',
}


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Args:
        heading: Its heading.
        body: HTML.
    """

    heading: str
    body: str


def page(
    title: str, facts: Sequence[tuple[str, str]], verdict: str, sections: Sequence[Section]
) -> str:
    """A whole page as HTML; it needs no network.

    Args:
        title: Heading and title.
        facts: Names and values that stand below the heading.
        verdict: HTML of the box at the top.
        sections: What follows; those without a body are left out.
    """
    shown = {f"s{k}": section for k, section in enumerate(sections) if section.body}
    links = "".join(f'<li><a href="#{key}">{s.heading}</a></li>' for key, s in shown.items())
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}" tabindex="-1">{section.heading}</h2>'
        f"{section.body}</section>"
        for key, section in shown.items()
    )
    parts = {
        "{{title}}": escape(title),
        "{{style}}": _file("page.css"),
        "{{facts}}": definitions(facts, "facts"),
        "{{links}}": links,
        "{{verdict}}": verdict,
        "{{body}}": body,
        "{{script}}": _file("page.js"),
    }
    return re.sub(r"{{\w+}}", lambda match: parts[match[0]], _file("page.html"))


def verdict_box(
    status: str, label: str, sentence: str, details: Sequence[tuple[str, str]] = ()
) -> str:
    """The box at the top: a mark, a word, a sentence, and details.

    Args:
        status: One of the statuses of :class:`~neuroinit.report.verdict.Verdict`.
        label: The status in words.
        sentence: The conclusion.
        details: Terms and their descriptions.
    """
    mark = f'<svg class="mark" viewBox="0 0 24 24" aria-hidden="true">{MARKS[status]}</svg>'
    return (
        f'<div class="verdict {status}">{mark}<div><p class="label">{escape(label)}</p>'
        f'<p class="sentence">{escape(sentence)}</p>'
        f"{definitions(details) if details else ''}</div></div>"
    )


def about_facts(about: About | None) -> list[tuple[str, str]]:
    """Model, parameters and date; nothing where they are not known."""
    if about is None:
        return []
    date = datetime.fromisoformat(about.date)
    return [
        ("Model", about.model),
        ("Parameters", f"{about.parameters:,}"),
        ("Date", f"{date.day} {date:%B %Y, %H:%M}"),
    ]


@cache
def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
