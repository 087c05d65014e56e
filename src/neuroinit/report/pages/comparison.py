"""The page about a comparison: several methods side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from neuroinit import plots
from neuroinit.choose.comparison_table import Comparison
from neuroinit.plots.training import comparison_curves
from neuroinit.report.html import UNKNOWN, Column, definitions, number, sortable_table
from neuroinit.report.pages.frame import Section, about_facts, page, verdict_box
from neuroinit.report.pages.glossary import GLOSSARY
from neuroinit.report.phrases import joined
from neuroinit.report.svg import chart, check_matplotlib
from neuroinit.report.verdict import OPEN

COSINE = (
    "It can be near 1 because the gradients explode, or because the outputs barely depend on the "
    "inputs."
)
CURVES = (
    ("training", "Training loss.", "A cross marks a loss that is not finite."),
    ("norm", "Gradient norm at every step of the methods.", ""),
    ("cosine", "GradCosine at every step of the methods.", ""),
    ("loss", "Loss at every step of the methods.", ""),
)
NUMBERS = (
    ("score", "Score.", "What the training returned."),
    ("loss", "Loss before training.", ""),
    ("norm", "Gradient norm before training.", ""),
    ("cosine", "GradCosine before training.", COSINE),
    ("cost", "Cost.", "Time of the method in training steps."),
)
COLUMNS = (
    ("loss", "Loss"),
    ("cosine", "Cosine"),
    ("norm", "Norm"),
    ("cost", "Cost"),
    ("score", "Score"),
)
USED = ("Sub-batch", "Gradient norm", "GradCosine")  # of the glossary


def comparison_page(comparison: Comparison, title: str) -> str:
    """A page with all methods of a comparison side by side, as HTML; it needs no network."""
    check_matplotlib()
    known = [entry for entry in GLOSSARY if entry[0] in USED]
    box = verdict_box(OPEN, "In short", _headline(comparison))
    sections = [
        Section("Methods", _methods(comparison)),
        Section("Curves", _curves(comparison)),
        Section("Numbers over seeds", _numbers(comparison)),
        Section("All runs", _runs(comparison)),
        Section("What failed", _failures(comparison)),
        Section("Words on this page", definitions(known, "glossary")),
    ]
    return page(title, _facts(comparison), box, sections)


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    seeds = sorted({record.seed for record in comparison})
    about = comparison.about
    size = [("Batch", f"{about.batch_size} samples")] if about and about.batch_size else []
    counts = [("Methods", str(len(comparison.methods))), ("Seeds", ", ".join(map(str, seeds)))]
    return [*about_facts(about), *size, *counts]


def _methods(comparison: Comparison) -> str:
    columns = [Column("Method", comparison.methods)]
    for key, label in COLUMNS:
        summary = list(comparison.summary(key).values())
        texts = [_cell(mean, deviation) for mean, deviation in summary]
        columns.append(Column(label, [mean for mean, _ in summary], texts=texts))
    caption = "Mean ± standard deviation over seeds; the cost is in training steps"
    return sortable_table("method", caption, columns, "methods")


def _cell(mean: float, deviation: float) -> str:
    if math.isnan(mean):
        return UNKNOWN
    return f"{number(float(f'{mean:.3g}'))} ± {number(float(f'{deviation:.2g}'))}"


def _curves(comparison: Comparison) -> str:
    found = [
        chart(f"curve-{key}", plots.curves(comparison, key), title, f"One line per seed. {text}")
        for key, title, text in CURVES
        if comparison_curves(comparison, key)
    ]
    return f'<div class="charts">{"".join(found)}</div>' if found else ""


def _numbers(comparison: Comparison) -> str:
    found = [
        chart(
            f"number-{key}",
            plots.compare(comparison, key),
            title,
            f"{text} A dot is a seed, the bar the standard deviation around the mean.".strip(),
        )
        for key, title, text in NUMBERS
        if any(math.isfinite(record[key]) for record in comparison)
    ]
    return f'<div class="charts">{"".join(found)}</div>' if found else ""


def _runs(comparison: Comparison) -> str:
    records = list(comparison)
    columns = [
        Column("Run", [f"{record.method}, seed {record.seed}" for record in records]),
        Column("Method", [record.method for record in records], True, "all methods"),
        Column("Seed", [str(record.seed) for record in records], True, "all seeds"),
        *(Column(label, [record[key] for record in records]) for key, label in COLUMNS),
    ]
    return sortable_table("run", "Every method on every seed", columns, "runs")


def _failures(comparison: Comparison) -> str:
    failed = [(f"{r.method}, seed {r.seed}", r.failed) for r in comparison if r.failed]
    return definitions(failed, "glossary") if failed else ""


def _headline(comparison: Comparison) -> str:
    """How far the methods are apart, in one sentence; which is better is not judged."""
    parts = []
    for what, column in (("score", "score"), ("gradient norm", "norm")):
        means = {method: mean for method, (mean, _) in comparison.summary(column).items()}
        known = {method: mean for method, mean in means.items() if math.isfinite(mean)}
        if known:
            span = f"{_named(min, known)} to {_named(max, known)}"
            parts.append(f"the mean {what} goes from {span}")
    trainings = [curves.losses for curves in comparison.curves.values() if curves.losses]
    diverged = sum(not math.isfinite(losses[-1]) for losses in trainings)
    if diverged:
        parts.append(f"{diverged} of {len(trainings)} trainings diverged")
    failed = sum(bool(record.failed) for record in comparison)
    if failed:
        parts.append(f"{failed} of {len(comparison)} runs of a method failed")
    count = f"{len(comparison.methods)} methods"
    return f"Of {count}, {joined(parts)}." if parts else f"No number of {count} is finite."


def _named(pick: Callable[..., str], known: Mapping[str, float]) -> str:
    name = pick(known, key=known.__getitem__)
    return f"{number(known[name])} ({name})"
