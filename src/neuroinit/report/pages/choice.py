"""The page about the choice of ``auto_``."""

from __future__ import annotations

from neuroinit import plots
from neuroinit.choose.auto_result import (
    START,
    AutoResult,
    CandidateRecord,
    last_learned,
)
from neuroinit.report import words
from neuroinit.report.html import Column, definitions, number, sortable_table
from neuroinit.report.pages.frame import Section, about_facts, page, verdict_box
from neuroinit.report.svg import chart, check_matplotlib
from neuroinit.report.verdict import OPEN, REPAIRED


def choice_page(choice: AutoResult, title: str) -> str:
    """A page about the choice of ``auto_``, as HTML; it needs no network."""
    check_matplotlib()
    status = OPEN if choice.winner == START else REPAIRED
    label = "Left as it was" if choice.winner == START else "Changed"
    box = verdict_box(status, label, f"{choice.winner}: {choice.verdict}.", _details(choice))
    sections = [
        Section("Training losses", _charts(choice)),
        Section("All candidates", _candidates(choice)),
        Section("What was not tried", _failures(choice)),
    ]
    return page(title, _facts(choice), box, sections)


def _facts(choice: AutoResult) -> list[tuple[str, str]]:
    about = about_facts(choice.results[0].about if choice.results else None)
    cost = [("Cost", f"{number(choice.cost)} training steps")]
    budget = "" if choice.budget is None else f" of a budget of {choice.budget}"
    return [*about, *cost, ("Short trainings", f"{choice.steps} training steps{budget}")]


def _details(choice: AutoResult) -> list[tuple[str, str]]:
    """What every method of the winner changed."""
    return [
        (str(result.settings.get("method", "Method")), words.changes(result))
        for result in choice.results
    ]


def _charts(choice: AutoResult) -> str:
    if not any(record.losses for record in choice.candidates):
        return ""
    text = "The winner's line is thick. A cross marks a loss that is not finite."
    drawn = chart("rollouts", plots.rollouts(choice), "Short trainings of all candidates.", text)
    return f'<div class="charts">{drawn}</div>'


def _candidates(choice: AutoResult) -> str:
    records = choice.candidates
    rounds = max((len(record.scores) for record in records), default=0)
    columns = [Column("Candidate", [record.name for record in records])]
    for k in range(rounds):
        columns.append(Column(f"Round {k + 1}", [_score(record, k) for record in records]))
    if any(record.learned for record in records):
        columns.append(Column("Learned about the inputs", [last_learned(r) for r in records]))
    columns.append(Column("Training steps", [float(record.steps) for record in records], True))
    columns.append(Column("Seconds to make it", [record.seconds for record in records], True))
    caption = "Loss on the validation batches after every round of short trainings"
    return sortable_table("candidate", caption, columns, "candidates")


def _score(record: CandidateRecord, k: int) -> float:
    return record.scores[k] if k < len(record.scores) else float("nan")


def _failures(choice: AutoResult) -> str:
    failed = [(record.name, record.failed) for record in choice.candidates if record.failed]
    return definitions(failed, "glossary") if failed else ""
