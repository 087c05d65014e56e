"""What `nio_` would apply by other rules, from the records of :mod:`benchmarks.defaults.rates`.

python -m benchmarks.defaults.rate_tables       # the tables of docs/evidence/defaults.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.defaults.layer_factors import NOT_FINITE
from benchmarks.defaults.rates import read
from benchmarks.statistics_tools import Compared, compared
from neuroinit.run.candidates import MOST
from neuroinit.run.judging import Judge
from neuroinit.run.rollout import Outcome
from neuroinit.run.verify import LEAST

Row = dict[str, Any]
GOOD = {
    "digits": 0.9,
    "fresh": 0.25,
    "letters": 0.25,
    "quadrants": 0.5,
    "sequences": 0.6,
    "text": 3.0,
}
LOWER = {"text": 0.1}  # a loss that is this much higher is clearly worse
POINTS = 0.05  # and so is an accuracy that is this much lower
PLACE = {4: 0, 8: 1, 12: 2, 16: 3}  # steps -> place in a record
SCALES = ("own", "whole", "half", "layers", "small", "smaller", "layers small", "normal small")


@cache
def rows() -> tuple[Row, ...]:
    """All records."""
    return tuple(row for suite in GOOD for row in read(suite))


def trains(row: Row, arm: str) -> bool:
    """Whether the training from a start ends well."""
    good = GOOD[row["suite"]]
    return bool(row[arm]["loss"] < good if "loss" in row[arm] else row[arm]["accuracy"] >= good)


def is_lower(row: Row, arm: str) -> bool:
    """Whether a training ends clearly lower than that of the start as it is."""
    if "loss" in row[arm]:
        return bool(row[arm]["loss"] > row["own"]["loss"] + LOWER["text"])
    return bool(row[arm]["accuracy"] < row["own"]["accuracy"] - POINTS)


@dataclass(frozen=True)
class Rule:
    """A way to decide.

    Args:
        rate: Factor of the learning rate of the trainings.
        steps: Of a training.
        errors: Standard errors by which a score has to be lower.
        least: Share by which it has to be lower, too.
        both: Whether layers and small branches are tried together.
        gpt2: Whether GPT-2's scales are tried where the model as it is fails.
        check: Whether the best has to be ahead at twice the learning rate, too.
        by_loss: Rank trainings by the loss alone.
        bounded: Whether what is learned is bounded by what can be learned.
        orthonormal: Whether LSUV, which draws new values, is tried in networks without branches.
    """

    rate: float = 1.0
    steps: int = 12
    errors: float = 1.0
    least: float = LEAST
    both: bool = True
    gpt2: bool = True
    check: bool = False
    by_loss: bool = False
    bounded: bool = True
    orthonormal: bool = False

    def __call__(self, row: Row) -> str:
        """The name of the start that is applied."""
        judge = Judge(self.outcome(row, "own"), row["own"]["first"])
        outcomes = {arm: self.outcome(row, arm) for arm in self.tried(row, judge.start_fails)}
        judge = judge.among(outcomes.values()) if self.bounded else judge
        best = judge.best(outcomes)
        if not best:
            return "own"
        if judge.start_fails:
            return best
        if not judge.is_ahead(outcomes[best], self.errors, self.least):
            return "own"
        if self.check:
            faster = outcome(row, best, 2 * self.rate, 16)
            if not math.isfinite(faster.loss) or judge.lead(faster)[0] < 0:
                return "own"
        return best

    def outcome(self, row: Row, arm: str) -> Outcome:
        """What a training reaches."""
        found = outcome(row, arm, self.rate, self.steps)
        return Outcome(found.losses, []) if self.by_loss else found

    def tried(self, row: Row, fails: bool) -> list[str]:
        """The starts that are tried, besides that of the model.

        Args:
            row: A record.
            fails: Whether the model as it is diverges or learns nothing.
        """
        arms = ["whole"] if "whole" in row else []
        if "small" in row:
            arms += ["small", "smaller", *(["layers small"] if self.both else [])]
            if self.gpt2 and fails and "normal small" in row:
                arms = [arm for arm in arms if arm != "smaller" or len(arms) < MOST]
                arms.append("normal small")
        else:
            arms += ["layers", *(["LSUV"] if self.orthonormal else [])]
        return [arm for arm in arms if arm in row]


def outcome(row: Row, arm: str, rate: float, steps: int) -> Outcome:
    """What a short training has reached."""
    losses, learned = row[arm]["rates"][f"{rate:g}"][PLACE[steps]]
    return Outcome([math.inf if x >= NOT_FINITE else x for x in losses], learned)


def form_before(row: Row) -> str:
    """The form of `nio_` before this study."""
    diagnosed = "whole" in row
    arms = ["whole"] if diagnosed else []
    if "small" in row:
        arms += ["small"] if diagnosed else ["small", "smaller"]
    elif "layers" in row:
        arms.append("layers")
    if arms == ["whole"]:
        arms.append("half")
    judge = Judge(outcome(row, "own", 1.0, 12), row["own"]["first"])
    usable = {a: outcome(row, a, 1.0, 12) for a in arms if a in row}
    usable = {a: seen for a, seen in usable.items() if judge.learns(seen)}
    if not usable:
        return "own"
    best = min(
        usable, key=lambda a: usable[a].loss if judge.start_fails else judge.score(usable[a])
    )
    faster = outcome(row, best, 2.0, 16)
    if judge.diverges(judge.start):
        return best
    if judge.start_fails:
        return "own" if judge.diverges(faster) else best
    gain, noise = judge.lead(usable[best])
    sure = gain >= 0 if diagnosed else gain > 2 * noise
    steady = math.isfinite(faster.loss) and judge.lead(faster)[0] >= 0
    return best if sure and steady else "own"


def known_in_advance(row: Row) -> str:
    """Scales that train, if there are any."""
    return next((arm for arm in SCALES if arm in row and trains(row, arm)), "own")


WAYS: dict[str, Callable[[Row], str]] = {
    "as it is": lambda row: "own",
    "LSUV, always": lambda row: "LSUV" if "LSUV" in row else "own",
    "the form before": form_before,
    "**the present form**": Rule(),
    "... without GPT-2's scales": Rule(gpt2=False),
    "... and without layers and branches together": Rule(gpt2=False, both=False),
    "... ahead at twice the learning rate, too": Rule(check=True),
    "... by the loss alone": Rule(by_loss=True),
    "... without the bound of what is learned": Rule(bounded=False),
    "... ahead by 2 standard errors": Rule(errors=2.0),
    "... ahead by 1 standard error, and 0%": Rule(least=0.0),
    "... ahead by 1 standard error, and 5%": Rule(least=0.05),
    "... ahead by 1 standard error, and 10%": Rule(least=0.1),
    "... with LSUV's new values as one more start, without branches": Rule(orthonormal=True),
    "... with 8 steps": Rule(steps=8),
    "... with 16 steps": Rule(steps=16),
    "... at twice the learning rate": Rule(rate=2.0),
    "... at 4 times the learning rate": Rule(rate=4.0),
    "the best of all scales, known in advance": known_in_advance,
}


def counted(cells: Sequence[Row], ways: Mapping[str, Callable[[Row], str]]) -> str:
    """Markdown: a line for each way to decide, with the cells that train in every suite."""
    suites = [suite for suite in GOOD if any(r["suite"] == suite for r in cells)]
    heads = [f"{suite}, {sum(r['suite'] == suite for r in cells)}" for suite in suites]
    head = [f"{len(cells)} cells", *heads, "all", "made worse", "clearly lower"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, choose in ways.items():
        chosen = [(row, choose(row)) for row in cells]
        good = [row["suite"] for row, arm in chosen if trains(row, arm)]
        working = [(row, arm) for row, arm in chosen if trains(row, "own")]
        worse = sum(not trains(*pair) for pair in working)
        lower = sum(is_lower(*pair) for pair in working)
        numbers = [*map(good.count, suites), len(good), worse, lower]
        lines.append(f"| {' | '.join([name, *map(str, numbers)])} |")
    return "\n".join(lines)


def table() -> str:
    """The table of all ways."""
    return counted(rows(), WAYS)


def gain(after: Callable[[Row], str], before: Callable[[Row], str]) -> Compared:
    """Cells that train by one way to decide, compared with another, in points."""
    keys = ("suite", "network", "start", "optimizer")
    scores = [
        {tuple(row[k] for k in keys): 100.0 * trains(row, way(row)) for row in rows()}
        for way in (after, before)
    ]
    return compared(*scores, group=lambda cell: cell[:2])


def main() -> None:
    """Print the table, and by how much the present form is ahead of the form before."""
    print(
        table(), f"The present form over the form before: {gain(Rule(), form_before)}", sep="\n\n"
    )


if __name__ == "__main__":
    main()
