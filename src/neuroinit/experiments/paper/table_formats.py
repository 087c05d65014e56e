"""Tables of text as Markdown and LaTeX, and the text of numbers in them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of text.

    Example:
        >>> print(Table("T", ["a", "b"], [["1", "2 ± 1"]]).markdown())
        **T**
        <BLANKLINE>
        | a | b |
        |---|---|
        | 1 | 2 ± 1 |
        <BLANKLINE>
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        body = [f"| {' | '.join(line)} |" for line in lines]
        body[1] = body[1].replace(" ", "")
        note = ["", self.note] if self.note else []
        return "\n".join([f"**{self.title}**", "", *body, *note]) + "\n"

    def latex(self) -> str:
        """As LaTeX, for ``booktabs``."""
        lines = [" & ".join(map(_escaped, line)) + r" \\" for line in (self.header, *self.rows)]
        body = [
            r"\begin{table}",
            rf"\caption{{{_escaped(' '.join(filter(None, (self.title + '.', self.note))))}}}",
            rf"\begin{{tabular}}{{{'l' * len(self.header)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(body) + "\n"


def _escaped(text: str) -> str:
    for sign in "%&_#":
        text = text.replace(sign, f"\\{sign}")
    text = re.sub(r'"([^"]*)"', r"``\1''", text)
    return text.replace("±", r"$\pm$")


def mean_and_deviation(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean and standard deviation; or how many of the values are missing or not finite.

    Example:
        >>> mean_and_deviation([1.0, 2.0, 3.0])
        '2.00 ± 1.00'
        >>> mean_and_deviation([1.5]), mean_and_deviation([1.0, None])
        ('1.50', 'diverged 1 of 2')
    """
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    if len(numbers) < len(values):
        return f"diverged {len(values) - len(numbers)} of {len(values)}"
    mean = f"{statistics.fmean(numbers):.{digits}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.stdev(numbers):.{digits}f}"
