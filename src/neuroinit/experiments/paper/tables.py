"""Tables 1 to 5 from the outcomes of runs and the costs of methods, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuroinit.experiments.paper.costs import Cost
from neuroinit.experiments.paper.grids import AUTHORS, OURS, Cell
from neuroinit.experiments.paper.published import published
from neuroinit.experiments.paper.run_grid import Outcomes
from neuroinit.experiments.paper.table_formats import Table, mean_and_deviation
from neuroinit.experiments.training.outcome import Outcome

AREA = "Mean training loss: the mean over all steps of a run."
DIVERGED = (
    '"diverged": a loss was not finite. The run ended there, and its network was tested as it was.'
)
STEP = (
    "A training step is a forward and backward pass of as many images as the method has per step."
)
FAIL = (
    '"fail n of m": n of m seeds had a loss that was not finite, or ended with a test accuracy '
    "below twice that of chance (with two classes: below 75 %)."
)


def accuracy(outcomes: Sequence[Outcome]) -> str:
    """Test accuracy in percent, and how many runs diverged, if any."""
    text = mean_and_deviation([100 * o.accuracy for o in outcomes], 1)
    diverged = sum(o.diverged for o in outcomes)
    return text + (f" ({diverged} diverged)" if diverged else "")


def cifar_table(name: str, title: str, cells: Sequence[Cell], found: Outcomes) -> Table:
    """Tables 1 and 2: one row per method; accuracy and mean training loss of every network."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    header = ["", "initialization"]
    for column in columns:
        paper = _paper_column(name, column)
        beside = "paper" if paper == column else f"paper, {paper}"
        header += [f"{column}: test accuracy, %", "mean training loss", beside]
    rows = []
    for group, row in dict.fromkeys((cell.group, cell.row) for cell in cells):
        line = [group, row]
        for column in columns:
            outcomes = found[group, row, column]
            paper = published(name, group, row, _paper_column(name, column))
            line += [accuracy(outcomes), mean_and_deviation([o.area for o in outcomes], 3), paper]
        rows.append(line)
    return Table(title, header, rows, f"{_runs(cells, found)} {AREA} {DIVERGED}")


def _paper_column(name: str, column: str) -> str:
    """The paper's column to compare with: that of ResNet-110 for a network it does not have."""
    return column if published(name, "w/ BN", "Kaiming", column) else "ResNet-110"


def imagenet_table(
    title: str, cells: Sequence[Cell], found: Outcomes, costs: dict[str, Cost]
) -> Table:
    """Table 4: accuracy, and the time of the initialization."""
    header = ["initialization", "test accuracy, %", "init / train time", "init, in training steps"]
    header += ["paper: accuracy", "paper: init / train time"]
    rows = []
    for cell in cells:
        outcomes = found[cell.position]
        init, train = (
            sum(seconds) / len(outcomes)
            for seconds in zip(*((o.init_seconds, o.train_seconds) for o in outcomes), strict=True)
        )
        times = f"{init:.0f} s / {train:.0f} s"
        measured = f"{costs[cell.row].training_steps:.0f}" if cell.row in costs else ""
        paper = [published("table4", "", cell.row, column) for column in ("ResNet", "time")]
        rows.append([cell.row, accuracy(outcomes), times, measured, *paper])
    return Table(title, header, rows, f"{_runs(cells, found)} {STEP} {DIVERGED}")


def cost_table(name: str, title: str, cells: Sequence[Cell], costs: dict[str, Cost]) -> Table:
    """The costs of the methods of a table, without training."""
    header = ["initialization", "images per step", "step, s", "step, in training steps"]
    header += ["extra memory, MB", "steps", "initialization, in training steps"]
    header.append("paper: init / train time")
    rows = []
    for cell in cells:
        if cell.row not in costs:
            continue
        cost = costs[cell.row]
        rows.append(
            [
                cell.row,
                str(cell.config.init_size),
                f"{cost.seconds:.1f}",
                f"{cost.seconds / cost.training_seconds:.1f}",
                f"{cost.megabytes:.0f}",
                str(cost.steps),
                f"{cost.training_steps:.0f}",
                published(name, "", cell.row, "time") or "not in the paper",
            ]
        )
    return Table(title, header, rows, f"Ours: {cells[0].config.model}. {STEP}")


def split_table(
    title: str,
    cells: Sequence[Cell],
    found: Outcomes,
    authors: dict[str, Cost],
    ours: dict[str, Cost],
) -> Table:
    """Table 3: accuracy for D and r; time and memory for D, in the authors' form and in ours.

    Without outcomes, the table has no accuracies.
    """
    columns = list(dict.fromkeys(cell.column for cell in cells))
    header = ["D", *(f"accuracy, %, {column}" for column in columns if found)]
    for form in (AUTHORS, OURS):
        header += [f"{form}: step, s", "in training steps", "extra memory, MB"]
    header += ["paper: accuracy, r = 0, 0.2, 0.4, 0.6", "paper: time, s", "paper: memory, MB"]
    rows = []
    for d in dict.fromkeys(cell.row for cell in cells):
        positions = [("", d, column) for column in columns if found]
        line = [d, *(accuracy(found[p]) if p in found else "" for p in positions)]
        for cost in (authors[d], ours[d]):
            line += [f"{cost.seconds:.2f}", f"{cost.seconds / cost.training_seconds:.1f}"]
            line.append(f"{cost.megabytes:.0f}")
        line.append(", ".join(published("table3", "", d, f"r={r:g}") for r in (0, 0.2, 0.4, 0.6)))
        line += [published("table3", "", d, "seconds"), published("table3", "", d, "MB")]
        rows.append(line)
    size = cells[0].config.init_size
    note = f"{_runs(cells, found)} {cells[0].config.model}, B = {size}. {STEP}".strip()
    return Table(title, header, rows, f"{note} {DIVERGED}" if found else note)


def swin_table(title: str, cells: Sequence[Cell], found: Outcomes) -> Table:
    """Table 5: with and without warmup."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = []
    for row in dict.fromkeys(cell.row for cell in cells):
        outcomes = [found["", row, column] for column in columns]
        rows.append([row, *map(_accuracy_or_fail, outcomes)])
        losses = [mean_and_deviation([o.area for o in seeds], 3) for seeds in outcomes]
        rows.append([f"{row}: mean training loss", *losses])
        paper = [published("table5", "", row, column) for column in columns]
        rows.append([f"{row}: paper, Swin-T", *paper])
    return Table(
        title, ["test accuracy, %", *columns], rows, f"{_runs(cells, found)} {AREA} {FAIL}"
    )


def _accuracy_or_fail(outcomes: Sequence[Outcome]) -> str:
    failed = sum(o.failed for o in outcomes)
    good = [100 * o.accuracy for o in outcomes if not o.failed]
    text = [f"fail {failed} of {len(outcomes)}"] if failed else []
    return "; ".join([*text, *([mean_and_deviation(good, 1)] if good else [])])


def _runs(cells: Sequence[Cell], found: Outcomes) -> str:
    """The sentence about data, epochs and seeds; "" without outcomes."""
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
