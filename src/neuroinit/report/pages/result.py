"""The page about one result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape

from neuroinit import plots
from neuroinit.common.sealed_json import JSON
from neuroinit.plots.steps import recorded
from neuroinit.report import remarks, words
from neuroinit.report.html import (
    Column,
    before_and_after,
    definitions,
    number,
    sortable_table,
    table,
)
from neuroinit.report.pages.code import code
from neuroinit.report.pages.frame import Section, about_facts, page, verdict_box
from neuroinit.report.pages.glossary import GLOSSARY
from neuroinit.report.svg import chart, check_matplotlib
from neuroinit.report.verdict import Verdict, judge
from neuroinit.run.results.result import Result
from neuroinit.run.results.tensor_table import tensor_rows
from neuroinit.run.results.text import ending

ROWS = (
    ("Loss", "loss"),
    ("GradCosine", "cosine"),
    ("Agreement", "agreement"),
    ("Gradient norm", "norm"),
    ("Largest norm of a sub-batch", "norm_max"),
    ("Smallest norm of a sub-batch", "norm_min"),
    ("Largest / smallest norm", "norm_ratio"),
    ("Gradient variance", "variance"),
)


def result_page(result: Result, title: str) -> str:
    """A page about a result of ``optimize`` or ``nio_``, as HTML; it needs no network."""
    check_matplotlib()
    verdict = judge(result)
    sections = [
        Section("Before and after", _measured(result, verdict)),
        Section("Charts", _charts(result)),
        Section("All tensors", _tensors(result)),
        Section("Repeat it", f'<pre tabindex="0"><code>{escape(code(result))}</code></pre>'),
        Section("Settings", _settings(result)),
        Section("Words on this page", definitions(GLOSSARY, "glossary")),
    ]
    label, sentence = words.label(result, verdict), words.headline(result, verdict)
    box = verdict_box(verdict.status, label, sentence, words.details(result, verdict))
    return page(title, _facts(result), box, sections)


def _facts(result: Result) -> list[tuple[str, str]]:
    steps = len(result.history)
    size = result.about.batch_size if result.about else None
    samples = f" of {size} samples" if size else ""
    batches = "1 batch" if steps == 1 else f"{steps} batches"
    used = f"{batches}{samples}, one per step" if steps else "none"
    held = "; 1 held-out batch" if result.held_out and result.after else ""
    seconds = sum(record.seconds for record in result.history)
    took = f" in {seconds:.1f} s ({ending(result)})" if steps else ""
    method = result.settings.get("method", "not known")
    return [*about_facts(result.about), ("Method", f"{method}{took}"), ("Batches", f"{used}{held}")]


def _measured(result: Result, verdict: Verdict) -> str:
    measured = result.after or result.before
    if measured is None:
        return ""
    where = "a held-out batch" if result.held_out else "a batch that the steps have used"
    count = len(measured.norms)
    caption = f"Gradients of the untrained model on {where}, in {count} sub-batches"
    note = f"{remarks.cosine_note(result, verdict)} {_agreement_note(result)}".strip()
    shown = table(caption, ("", "before", "after"), before_and_after(result, ROWS))
    return f'<div class="pair">{shown}<p class="note">{escape(note)}</p></div>' if note else shown


def _agreement_note(result: Result) -> str:
    """What the agreement says beside GradCosine; empty if it was not measured."""
    before, after = result.before, result.after
    if before is None or after is None or math.isnan(before.agreement + after.agreement):
        return ""
    change = f"went from {number(before.agreement)} to {number(after.agreement)}"
    if words.unchanged(result):
        change = f"is {number(after.agreement)}"
    return (
        "The agreement leaves out what a network can learn while it ignores its input. It "
        f"{change}; a network that ignores its input has about "
        f"{number(-1 / (len(after.norms) - 1))}."
    )


def _charts(result: Result) -> str:
    found = []
    note = remarks.cosine_pointer(result)
    if len(result.history) > 1 and recorded(result.history):
        text = f"{remarks.history_note(result)} {note}".strip()
        found.append(chart("steps", plots.history(result), "Every step.", text))
    sides = [stats for stats in (result.before, result.after) if stats is not None]
    if words.unchanged(result):
        sides = sides[-1:]  # before and after are the same
    if sides:
        text = f"Filled circles are weights, open diamonds are biases. {note}".strip()
        found.append(chart("tensors", plots.layers(*sides), "Gradient of every tensor.", text))
        text = f"Norms of {len(sides[0].norms)} sub-batches, and a histogram of their cosines."
        found.append(chart("parts", plots.batches(*sides), "Gradients of the sub-batches.", text))
    if any(scale > 0 and scale != 1 for scale in result.scales.values()):
        text = "The factor of every tensor, in the order of the model."
        found.append(chart("scales", plots.scales(result), "Scales.", text))
    return f'<div class="charts">{"".join(found)}</div>' if found else ""


def _tensors(result: Result) -> str:
    rows = tensor_rows(result)
    if not rows:
        return ""
    columns = [
        Column("Tensor", [row.name for row in rows]),
        Column("Layer group", [row.group for row in rows], True, "all groups"),
        Column("Kind", [row.kind for row in rows], True, "weights and biases"),
        Column("Scale", [row.scale for row in rows]),
        Column("Norm before", [row.norm_before for row in rows]),
        Column("Norm after", [row.norm_after for row in rows]),
        Column("Cosine before", [row.cosine_before for row in rows]),
        Column("Cosine after", [row.cosine_after for row in rows]),
    ]
    if result.drawn:
        drawn = ["new" if row.redrawn else "scaled" for row in rows]
        columns.insert(3, Column("Values", drawn, wide_only=True))
    caption = "Scale of every tensor, and norm and cosine of its gradient"
    return sortable_table("tensor", caption, columns, "tensors")


def _settings(result: Result) -> str:
    rows = [(key, _plain(value)) for key, value in _flat(result.settings)]
    rows += [("engine", result.engine)]
    rows += [(f"version of {name}", version) for name, version in result.versions.items()]
    shown = table("Settings of the method", ("Setting", "Value"), rows, "words")
    return f"<details><summary>Show all {len(rows)} settings</summary>{shown}</details>"


def _flat(settings: Mapping[str, JSON], prefix: str = "") -> Iterator[tuple[str, JSON]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: JSON) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else number(value)
