"""Outcomes -> tables, as Markdown and LaTeX, with the paper's numbers beside ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neuroinit.experiments.paper.costs import Cost
from neuroinit.experiments.paper.grid import Found, spread
from neuroinit.experiments.paper.printed import printed
from neuroinit.experiments.paper.settings import AUTHORS, OURS, Cell
from neuroinit.experiments.training.run import Outcome


@dataclass(frozen=True)
class Table:
    """A table of texts.

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


def accuracy(outcomes: Sequence[Outcome]) -> str:
    """Test accuracy in per cent, and how many runs diverged, if any."""
    text = spread([100 * o.accuracy for o in outcomes], 1)
    diverged = sum(o.diverged for o in outcomes)
    return text + (f" ({diverged} diverged)" if diverged else "")


def networks(name: str, title: str, cells: Sequence[Cell], found: Found) -> Table:
    """Tables 1 and 2: a row a method, accuracy and mean training loss of every network."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    header = ["", "start"]
    for column in columns:
        header += [f"{column}: test accuracy, %", "mean training loss", _beside(name, column)]
    rows = []
    for group, row in dict.fromkeys((cell.group, cell.row) for cell in cells):
        line = [group, row]
        for column in columns:
            outcomes = found[group, row, column]
            paper = printed(name, group, row, _paper_column(name, column))
            line += [accuracy(outcomes), spread([o.area for o in outcomes], 3), paper]
        rows.append(line)
    return Table(title, header, rows, f"{_runs(cells, found)} {AREA} {DIVERGED}")


AREA = (
    "Mean training loss: of all steps, which is the area under the loss curve of a run of length 1."
)
DIVERGED = (
    '"diverged": a loss was not finite. The run ended there, and its network was tested as it was.'
)


def _paper_column(name: str, column: str) -> str:
    """The paper's network for a column; another ResNet stands beside ResNet-110."""
    return column if printed(name, "w/ BN", "Kaiming", column) else "ResNet-110"


def _beside(name: str, column: str) -> str:
    paper = _paper_column(name, column)
    return "paper" if paper == column else f"paper, {paper}"


def imagenet(title: str, cells: Sequence[Cell], found: Found, costs: dict[str, Cost]) -> Table:
    """Table 3: accuracy and the price of the initialization."""
    header = ["start", "test accuracy, %", "init / train time", "init, in training steps"]
    header += ["paper: accuracy", "paper: init / train time"]
    rows = []
    for cell in cells:
        outcomes = found.get((cell.group, cell.row, cell.column), [])
        times = ""
        if outcomes:
            init, train = (
                sum(getattr(o, name) for o in outcomes) / len(outcomes)
                for name in ("init_seconds", "train_seconds")
            )
            times = f"{init:.0f} s / {train:.0f} s"
        measured = f"{costs[cell.row].training_steps:.0f}" if cell.row in costs else ""
        paper = [printed("table3", "", cell.row, column) for column in ("ResNet", "time")]
        rows.append([cell.row, accuracy(outcomes), times, measured, *paper])
    return Table(title, header, rows, f"{_runs(cells, found)} {STEP} {DIVERGED}")


STEP = "A training step is a forward and backward pass of as many images as a step of the method."


def prices(name: str, title: str, cells: Sequence[Cell], costs: dict[str, Cost]) -> Table:
    """What the methods of a table cost, without any training."""
    header = ["start", "images a step", "step, s", "step, in training steps", "extra memory, MB"]
    header += ["steps", "initialization, in training steps", "paper: init / train time"]
    rows = []
    for cell in cells:
        if cell.row not in costs:
            continue
        price = costs[cell.row]
        rows.append(
            [
                cell.row,
                str(cell.config.init_batch_size or cell.config.batch_size),
                f"{price.seconds:.1f}",
                f"{price.seconds / price.training_seconds:.1f}",
                f"{price.megabytes:.0f}",
                str(price.steps),
                f"{price.training_steps:.0f}",
                printed(name, "", cell.row, "time") or "not printed",
            ]
        )
    return Table(title, header, rows, f"Ours: {cells[0].config.model}. {STEP}")


def splits(
    title: str,
    cells: Sequence[Cell],
    found: Found,
    costs: dict[str, Cost],
    ours: dict[str, Cost],
) -> Table:
    """Table 4: accuracy for D and r, time and memory for D, in the authors' form and in ours."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    header = ["D", *(f"accuracy, %, {column}" for column in columns if found)]
    for form in (AUTHORS, OURS):
        header += [f"{form}: step, s", "in training steps", "extra memory, MB"]
    header += ["paper: accuracy, r = 0, 0.2, 0.4, 0.6", "paper: time, s", "paper: memory, MB"]
    rows = []
    for d in dict.fromkeys(cell.row for cell in cells):
        accuracies = [accuracy(found[k]) if (k := ("", d, c)) in found else "" for c in columns]
        line = [d, *(accuracies if found else ())]
        for price in (costs[d], ours[d]):
            line += [f"{price.seconds:.2f}", f"{price.seconds / price.training_seconds:.1f}"]
            line.append(f"{price.megabytes:.0f}")
        line.append(", ".join(printed("table4", "", d, f"r={r:g}") for r in (0, 0.2, 0.4, 0.6)))
        line += [printed("table4", "", d, "seconds"), printed("table4", "", d, "MB")]
        rows.append(line)
    size = cells[0].config.init_batch_size or cells[0].config.batch_size
    note = f"{_runs(cells, found)} {cells[0].config.model}, B = {size}. {STEP}".strip()
    return Table(title, header, rows, f"{note} {DIVERGED}" if found else note)


FAIL = (
    '"fail n of m": n of m seeds had a loss that was not finite, or ended with a test accuracy '
    "below twice that of chance (with two classes: below 75 %)."
)


def transformer(title: str, cells: Sequence[Cell], found: Found) -> Table:
    """Table 5: with and without warmup."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = []
    for row in dict.fromkeys(cell.row for cell in cells):
        rows.append([row, *(_or_fail(found["", row, column]) for column in columns)])
        loss = [spread([o.area for o in found["", row, column]], 3) for column in columns]
        rows.append([f"{row}: mean training loss", *loss])
        paper = [printed("table5", "", row, column) for column in columns]
        rows.append([f"{row}: paper, Swin-T", *paper])
    return Table(
        title, ["test accuracy, %", *columns], rows, f"{_runs(cells, found)} {AREA} {FAIL}"
    )


def _or_fail(outcomes: Sequence[Outcome]) -> str:
    failed = sum(o.failed for o in outcomes)
    fine = [100 * o.accuracy for o in outcomes if not o.failed]
    text = [f"fail {failed} of {len(outcomes)}"] if failed else []
    return "; ".join([*text, *([spread(fine, 1)] if fine else [])])


def _runs(cells: Sequence[Cell], found: Found) -> str:
    """What was run, and how often."""
    if not found:
        return ""
    config, count = cells[0].config, len(next(iter(found.values())))
    kind, _, path = config.data.partition(":")
    images = "all" if config.train_images is None else config.train_images
    return (
        f"Ours: {kind}{path and ' '}{Path(path).name}, {images} training images, {config.epochs} "
        f"epoch{'s' * (config.epochs > 1)} in batches of {config.batch_size}. "
        + (f"Mean ± standard deviation of {count} seeds." if count > 1 else "One seed.")
    )
