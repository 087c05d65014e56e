"""Intervals and tests for tables: bootstrap, paired differences, rank correlations.

Two methods of a suite are :func:`compared` cell by cell. Cells of one network are not independent,
so networks are drawn, with all their cells.

All random numbers have fixed seeds, so a table is the same whenever it is made of the same records.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DRAWS = 10_000


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 1, sign: bool = True) -> str:
        """For a table, such as ``+0.4 (-0.2 to +1.1)``."""
        plus = "+" if sign else ""
        numbers = [f"{x:{plus}.{digits}f}" for x in (self.value, self.low, self.high)]
        return "{} ({} to {})".format(*numbers)

    @property
    def certain(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def bootstrap(
    values: Sequence[Any], statistic: Callable[[Tensor], Tensor] | None = None
) -> Interval:
    """The mean, or another statistic of the rows, and its percentile interval.

    Args:
        values: One number, or one row of numbers, per unit that is drawn again (seed, network).
        statistic: Of a tensor ``(draws, units, ...)``, one number per draw; by default the mean.

    Example:
        >>> bootstrap([1.0, 1.0, 1.0]).text()
        '+1.0 (+1.0 to +1.0)'
    """
    data = torch.tensor(values, dtype=torch.float64)
    of = statistic or (lambda drawn: drawn.mean(1))
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(len(data), (DRAWS, len(data)), generator=generator)
    found = of(data[index])
    low, high = torch.quantile(found, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(float(of(data[None])[0]), low, high)


# 97.5% quantile of Student's t, by degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def paired(after: Sequence[float], before: Sequence[float]) -> Interval:
    """The mean difference of pairs and its interval by Student's t.

    With the five seeds of a table the bootstrap's intervals are too short; t is for few pairs.

    Example:
        >>> paired([2.0, 3.0, 4.0], [1.0, 1.0, 1.0]).text(2)
        '+2.00 (-0.48 to +4.48)'
    """
    pair = torch.tensor([after, before], dtype=torch.float64)
    differences = pair[0] - pair[1]
    count, mean = len(differences), float(differences.mean())
    if count < 2:
        return Interval(mean, float("-inf"), float("inf"))
    quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else 1.96 + 2.5 / count
    half = quantile * float(differences.std()) / count**0.5
    return Interval(mean, mean - half, mean + half)


def spearman(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Rank correlation and its bootstrap interval.

    Example:
        >>> spearman([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 9.0, 16.0]).value
        1.0
    """

    def correlation(drawn: Tensor) -> Tensor:
        x, y = _ranks(drawn[..., 0]), _ranks(drawn[..., 1])
        x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        return (x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1))

    return bootstrap(list(zip(first, second, strict=True)), correlation)  # type: ignore[arg-type]


def _ranks(values: Tensor) -> Tensor:
    """Ranks of every row; equal values share the mean of their ranks."""
    below = (values[:, :, None] > values[:, None, :]).sum(2)
    equal = (values[:, :, None] == values[:, None, :]).sum(2)
    return below.double() + (equal - 1) / 2


# -- suites: cells of networks ---------------------------------------------------------------------

Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Compared:
    """Two methods on the same cells.

    Args:
        cells: How many.
        groups: How many networks they belong to.
        better: Cells in which the first method is better.
        worse: Cells in which it is worse.
        mean: Mean difference.
        low: Lower end of its 95% interval, by bootstrap over networks.
        high: Upper end.
        p: Two-sided p value of the sign test over networks: each counts once, by the sign of its
            mean difference.
    """

    cells: int
    groups: int
    better: int
    worse: int
    mean: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        return (
            f"{self.mean:+.3g} [{self.low:+.3g}, {self.high:+.3g}], {self.better}:{self.worse}, "
            f"p = {self.p:.2g}"
        )


def compared(
    mine: Mapping[Cell, float],
    theirs: Mapping[Cell, float],
    group: Callable[[Cell], Hashable] = lambda cell: cell[0],
) -> Compared:
    """Compare two methods on the cells that both have; larger is better.

    Args:
        mine: Cell -> score, such as 1.0 if it trains.
        theirs: The same for the other method.
        group: The network of a cell; by default its first part.

    Example:
        >>> mine = {("a", 0): 1.0, ("a", 1): 1.0, ("b", 0): 1.0}
        >>> theirs = {("a", 0): 0.0, ("a", 1): 1.0, ("b", 0): 1.0}
        >>> found = compared(mine, theirs)
        >>> found.better, found.worse, found.groups
        (1, 0, 2)
    """
    by_group: dict[Hashable, list[float]] = defaultdict(list)
    for cell in sorted(mine.keys() & theirs.keys(), key=str):
        by_group[group(cell)].append(mine[cell] - theirs[cell])
    rows = list(by_group.values())
    differences = [d for row in rows for d in row]
    if not differences:
        raise ValueError("The two methods have no cell in common.")
    low, high = _interval(rows)
    signs = [math.copysign(1.0, sum(row)) for row in rows if sum(row)]
    return Compared(
        cells=len(differences),
        groups=len(rows),
        better=sum(d > 0 for d in differences),
        worse=sum(d < 0 for d in differences),
        mean=sum(differences) / len(differences),
        low=low,
        high=high,
        p=sign_test(sum(s > 0 for s in signs), len(signs)),
    )


def _interval(rows: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95% interval of the mean of all numbers, drawing whole rows with replacement."""
    sums = torch.tensor([[sum(row), len(row)] for row in rows], dtype=torch.float64)
    found = bootstrap(sums.tolist(), lambda drawn: drawn[..., 0].sum(1) / drawn[..., 1].sum(1))
    return found.low, found.high


def sign_test(successes: int, trials: int) -> float:
    """The two-sided p value of so many successes in trials with probability 1/2.

    Example:
        >>> sign_test(0, 5)
        0.0625
        >>> sign_test(0, 0)
        1.0
    """
    fewer = min(successes, trials - successes)
    return float(min(1.0, 2 * sum(math.comb(trials, k) for k in range(fewer + 1)) / 2**trials))


def halves(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Every other network, in the order of the suite: those to choose by, and those to claim on."""
    return list(names[::2]), list(names[1::2])
