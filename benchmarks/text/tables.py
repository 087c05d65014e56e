"""Tables and figure of the text suite, from the records of `grid`.

    python -m benchmarks.text.tables            # prints the tables, draws docs/evidence/text.png

A network is a norm, a depth and a seed. Only networks that every row has are counted. Differences
are paired by network, optimizer and warmup; intervals are by bootstrap over networks.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.statistics_tools import Interval, bootstrap
from benchmarks.text.grid import NORMS, OPTIMIZERS, ROWS, SMOOTHED, STEPS, read

PICTURE = Path(__file__).parents[2] / "docs" / "evidence" / "text.png"
TRAINS = 3.0  # a test loss below this: the entropy of single characters is 3.35
UNIFORM = 4.17  # the loss of a uniform guess; losses are capped here
WORSE = 0.1  # a test loss that is higher by this is a harm
BEFORE = "as it is"
TITLES = {"post": "Post-LN", "pre": "Pre-LN", "none": "no normalization"}
Network = tuple[str, int, int]  # norm, blocks, seed
Cell = tuple[Network, str, bool]  # network, optimizer, warmup
Found = dict[str, dict[Cell, dict[str, Any]]]  # row -> cell -> record
Score = Callable[[dict[str, Any]], float]


def load(rows: list[dict[str, Any]]) -> Found:
    """The records by row and cell, of the networks that all rows have."""
    found: Found = defaultdict(dict)
    for r in rows:
        network = (r["norm"], r["blocks"], r["seed"])
        found[r["method"]][network, r["optimizer"], r["warmup"]] = r
    whole = {n for n, *_ in found[BEFORE] if all(_has(found[m], n) for m in _rows(n[0]))}
    return {m: {c: r for c, r in found[m].items() if c[0] in whole} for m in ROWS}


def _rows(norm: str) -> list[str]:
    return [m for m in ROWS if norm in ROWS[m].norms]


def _has(cells: dict[Cell, Any], network: Network) -> bool:
    return sum(c[0] == network for c in cells) == 2 * len(OPTIMIZERS)


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: all cells, then the losses over learning rates, a table a norm."""
    found = load(rows)
    parts = [summary(found, norm) for norm in NORMS] + [rates(found, norm) for norm in NORMS]
    parts.append(seeds(found, "post", ("AdamW 0.003", "AdamW 0.01", "SGD 0.1, momentum 0.9")))
    return "\n\n".join(filter(None, parts))


def capped(record: dict[str, Any]) -> float:
    """The test loss, at most that of a uniform guess."""
    return min(float(record["test"]), UNIFORM)


def at_equal_cost(record: dict[str, Any]) -> float:
    """The training loss when start and training together have cost as much as the training."""
    part = int((STEPS - record["cost"]) // SMOOTHED) - 1
    return min(float(record["curve"][part]), UNIFORM) if part >= 0 else UNIFORM


def difference(found: Found, method: str, cells: list[Cell], score: Score) -> Interval:
    """To the start as it is; networks are drawn again."""
    own: dict[Network, list[float]] = defaultdict(list)
    for c in cells:
        own[c[0]].append(score(found[method][c]) - score(found[BEFORE][c]))
    sums = [(sum(row), float(len(row))) for row in own.values()]
    return bootstrap(sums, lambda drawn: drawn[..., 0].sum(1) / drawn[..., 1].sum(1))


def summary(found: Found, norm: str) -> str:
    """A line a row: what trains, what is gained, with and without warmup, and what it costs."""
    cells = [c for c in found[BEFORE] if c[0][0] == norm]
    if not cells:
        return ""
    networks, half = len({c[0] for c in cells}), len(cells) // 2
    head = [
        f"{TITLES[norm]}, {networks} networks",
        f"train, of {half}",
        "with warmup",
        "test loss, over the start's",
        "with warmup",
        f"worse by {WORSE}, better",
        "cost, training steps",
        "loss at equal total cost, over the start's",
    ]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join(lines + [_line(found, m, cells) for m in _rows(norm)])


def _line(found: Found, method: str, cells: list[Cell]) -> str:
    mine = found[method]
    without, with_ = ([c for c in cells if c[2] is warm] for warm in (False, True))
    train = [str(sum(mine[c]["test"] < TRAINS for c in part)) for part in (without, with_)]
    change = [capped(mine[c]) - capped(found[BEFORE][c]) for c in cells]
    if method == BEFORE:
        return f"| {method} | {' | '.join(train)} | | | | | |"
    gains = [_bold(difference(found, method, part, capped)) for part in (without, with_)]
    harm = f"{sum(x > WORSE for x in change)}, {sum(x < -WORSE for x in change)}"
    cost = statistics.median(mine[c]["cost"] for c in cells)
    equal = _bold(difference(found, method, without, at_equal_cost))
    equal = equal if cost < STEPS else "costs more than the training"
    return f"| {' | '.join([method, *train, *gains, harm, f'{cost:.0f}', equal])} |"


def _bold(found: Interval) -> str:
    return f"**{found.text(2)}**" if found.certain else found.text(2)


def rates(found: Found, norm: str) -> str:
    """Mean test losses without and with warmup, an optimizer a column."""
    cells = [c for c in found[BEFORE] if c[0][0] == norm]
    if not cells:
        return ""
    head = [f"{TITLES[norm]}: test loss without / with warmup", *OPTIMIZERS, "rates that train"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for method in _rows(norm):
        texts = [
            " / ".join(f"{_mean(found[method], cells, o, warm):.2f}" for warm in (False, True))
            for o in OPTIMIZERS
        ]
        width = " / ".join(_width(found[method], cells, warm) for warm in (False, True))
        lines.append(f"| {method} | {' | '.join(texts)} | {width} |")
    return "\n".join(lines)


def seeds(found: Found, norm: str, optimizers: tuple[str, ...]) -> str:
    """Test losses of every seed, without / with warmup; a column a depth and optimizer."""
    networks = sorted({c[0] for c in found[BEFORE] if c[0][0] == norm})
    if not networks:
        return ""
    columns = [(d, o) for d in sorted({n[1] for n in networks}) for o in optimizers]
    head = [f"{TITLES[norm]}: every seed", *(f"{d} blocks, {o}" for d, o in columns)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for method in _rows(norm):
        texts = [
            " / ".join(
                " ".join(f"{capped(found[method][n, o, warm]):.2f}" for n in networks if n[1] == d)
                for warm in (False, True)
            )
            for d, o in columns
        ]
        lines.append(f"| {method} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _mean(mine: dict[Cell, Any], cells: list[Cell], optimizer: str, warm: bool) -> float:
    return statistics.mean(capped(mine[c]) for c in cells if c[1:] == (optimizer, warm))


def _width(mine: dict[Cell, Any], cells: list[Cell], warm: bool) -> str:
    """How many of the learning rates of AdamW train, mean over networks."""
    own = [c for c in cells if c[2] is warm and c[1].startswith("AdamW")]
    return f"{sum(mine[c]['test'] < TRAINS for c in own) / len({c[0] for c in own}):.1f}"


def figure(rows: list[dict[str, Any]], path: Path = PICTURE) -> None:
    """Test loss over the learning rate of AdamW: a column a norm, without and with warmup."""
    from neuroinit import plots
    from neuroinit.common.files import replacing

    found = load(rows)
    norms = [n for n in NORMS if any(c[0][0] == n for c in found[BEFORE])]
    made, axes = plots.figure(len(norms), rows=2, width=2.6, height=2.2)
    for column, norm in enumerate(norms):
        for line, warm in enumerate((False, True)):
            _panel(axes[line, column], found, norm, warm)
    for line in range(2):
        axes[line, 0].set_ylabel(f"test loss after {STEPS} steps", fontsize=7)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, fontsize=6, loc="outside right upper", frameon=False)
    with replacing(path) as temporary:
        made.savefig(temporary, format="png")


def _panel(ax: Any, found: Found, norm: str, warm: bool) -> None:
    cells = [c for c in found[BEFORE] if c[0][0] == norm]
    names = [o for o in OPTIMIZERS if o.startswith("AdamW")]
    for number, method in enumerate(ROWS):
        if norm not in ROWS[method].norms:
            continue
        losses = [_mean(found[method], cells, o, warm) for o in names]
        color, width = ("black", 2.0) if method == BEFORE else (f"C{number % 10}", 1.0)
        style = {"color": color, "linewidth": width, "linestyle": "-" if number < 10 else "--"}
        ax.plot([float(o.split()[1]) for o in names], losses, marker=".", label=method, **style)
    ax.set(xscale="log", ylim=(2.4, 4.3))
    ax.set_title(f"{TITLES[norm]}, {'warmup' if warm else 'no warmup'}", fontsize=8)
    ax.set_xlabel("learning rate of AdamW", fontsize=7)


def main() -> None:
    """Print the tables and draw the figure."""
    print(tables(read()))
    figure(read())


if __name__ == "__main__":
    main()
