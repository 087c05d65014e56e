"""Small parts of a page: numbers, tables, lists."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from neuroinit.plots.style import plain_number
from neuroinit.run.results.result import Result

UNKNOWN = "–"  # noqa: RUF001  (a dash, as tables have it)
SHORT = 8  # rows; shorter tables get no search field


def number(value: object) -> str:
    """A number as text for readers; text stays as it is.

    Example:
        >>> number(0.23456), number(3812345.6), number(float("nan")), number("auto")
        ('0.2346', '3.812·10⁶', '–', 'auto')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "none" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return plain_number(value)


def before_and_after(result: Result, rows: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """The label of each statistic, and its values before and after."""
    sides = result.before, result.after
    return [
        (label, *(number(getattr(stats, name)) if stats else UNKNOWN for stats in sides))
        for label, name in rows
    ]


def definitions(entries: Sequence[tuple[str, str]], kind: str = "") -> str:
    """Terms and what they mean."""
    inner = "".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in entries
    )
    return f"<dl{_class(kind)}>{inner}</dl>"


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers"
) -> str:
    """A table whose first column names the rows."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{breakable(first)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table class="{kind}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def breakable(name: str) -> str:
    """A name that may be broken after its dots and underscores; it is escaped."""
    return re.sub(r"([._])", r"\1<wbr>", escape(name))


@dataclass(frozen=True)
class Column:
    """A column of a table that can be sorted.

    Args:
        label: Its head.
        values: One for each row: numbers are sorted as numbers, text as text.
        texts: What is shown for each number; by default the number with three digits.
        wide_only: Leave it out on narrow screens.
        filtered: Offer a list of its values to choose from; its first entry is this text.
    """

    label: str
    values: Sequence[float | str]
    wide_only: bool = False
    filtered: str = ""
    texts: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """Its class in the style sheet."""
        return "wide-only" if self.wide_only else ""

    @property
    def known(self) -> bool:
        """Whether it has a value in any row."""
        return any(isinstance(value, str) or not math.isnan(value) for value in self.values)


def sortable_table(name: str, caption: str, columns: Sequence[Column], things: str) -> str:
    """A table with a button in every head that sorts it, a search field and lists to filter by.

    A short table has neither search nor lists. Without a script all rows are shown, and the
    controls are not. Columns without any value are left out.

    Args:
        name: Prefix of the ids.
        caption: What the table shows.
        columns: The first one names the rows, and is what the search looks at.
        things: What the rows are, in the plural.
    """
    columns = [column for column in columns if column.known]
    controls = _controls(name, columns, things) if len(columns[0].values) > SHORT else ""
    head = "".join(
        f'<th scope="col" role="columnheader" aria-sort="none"{_class(column.kind)}>'
        f'<button type="button">{escape(column.label)}<span class="arrow" aria-hidden="true">'
        "</span></button></th>"
        for column in columns
    )
    body = "".join(_row(columns, k) for k in range(len(columns[0].values)))
    narrow = sum(not column.wide_only for column in columns[1:])  # columns below the name
    return (
        f'<div class="explorer" data-things="{escape(things)}">{controls}'
        f'<div class="scroll tall" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table class="numbers sortable" role="table" style="--columns:{narrow}">'
        f"<caption>{escape(caption)}</caption>"
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div></div>'
    )


def _row(columns: Sequence[Column], k: int) -> str:
    """A row; its roles are written out, because narrow screens do not lay it out as a row."""
    cells = []
    for column in columns:
        value, kind = column.values[k], _class(column.kind)
        if column is columns[0]:
            cells.append(f'<th scope="row" role="rowheader"{kind}>{breakable(str(value))}</th>')
        elif isinstance(value, str):
            cells.append(f'<td role="cell"{kind}>{escape(value)}</td>')
        else:
            exact = "" if math.isnan(value) else f"{value:.6g}"
            shown = escape(column.texts[k]) if column.texts else number(float(f"{value:.3g}"))
            cells.append(f'<td role="cell"{kind} data-value="{exact}">{shown}</td>')
    return f'<tr role="row">{"".join(cells)}</tr>'


def _controls(name: str, columns: Sequence[Column], things: str) -> str:
    found = [
        f'<label for="{name}-search">Search {escape(things)} by name</label>'
        f'<input type="search" id="{name}-search" autocomplete="off" spellcheck="false">'
    ]
    for k, column in enumerate(columns):
        if column.filtered:
            choices = dict.fromkeys(str(value) for value in column.values)
            options = "".join(f"<option>{escape(choice)}</option>" for choice in choices)
            found.append(
                f'<label for="{name}-{k}">{escape(column.label)}</label>'
                f'<select id="{name}-{k}" data-column="{k}">'
                f'<option value="">{escape(column.filtered)}</option>{options}</select>'
            )
    inner = "".join(f"<div>{control}</div>" for control in found)
    return f'<div class="controls" hidden>{inner}<p class="count" role="status"></p></div>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
