"""What a notebook shows of a result, a comparison or a choice: a sentence and a table.

The HTML has no style sheet, so that it takes the notebook's colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from neuroinit.choose.auto_result import AutoResult
from neuroinit.choose.comparison_table import Comparison
from neuroinit.report import remarks, words
from neuroinit.report.html import before_and_after
from neuroinit.report.verdict import judge
from neuroinit.run.results.result import Result
from neuroinit.run.results.text import measured_rows


def result_note(result: Result) -> str:
    """A result for a notebook: the verdict, and the gradients before and after."""
    verdict = judge(result)
    first = f"{words.label(result, verdict)}."
    rows = before_and_after(result, measured_rows(result))
    measured = result.before or result.after
    table = _table(("", "before", "after"), rows) if measured else ""
    note = remarks.cosine_note(result, verdict)
    return _note(first, words.headline(result, verdict), table, note)


def comparison_note(comparison: Comparison) -> str:
    """A comparison for a notebook: mean and standard deviation of every method."""
    head, lines = comparison.rows()
    return _note("", comparison.title(), _table(head, lines))


def choice_note(choice: AutoResult) -> str:
    """The choice of ``auto_`` for a notebook: the winner, the cost, and every candidate."""
    head, lines = choice.rows()
    return _note(f"{choice.winner}:", choice.verdict, _table(head, lines), choice.costs())


def _note(first: str, sentence: str, table: str, last: str = "") -> str:
    label = f"<strong>{escape(first)}</strong> " if first else ""
    end = f"<p>{escape(last)}</p>" if last else ""
    return f"<div><p>{label}{escape(sentence)}</p>{table}{end}</div>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
