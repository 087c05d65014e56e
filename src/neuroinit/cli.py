"""The ``neuroinit`` command."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from neuroinit.common.errors import needs_extra
from neuroinit.experiments import commands
from neuroinit.run.result import load_result
from neuroinit.version import __version__


def demo(
    out: Path = Path("neuroinit-demo.png"), seeds: int = 3, epochs: int = 6, json: bool = False
) -> None:
    """Train two deep networks without normalization, from Kaiming and from NIO.

    On scikit-learn's bundled digits, with plain SGD at 0.1 and no warmup; about a minute.
    Example: `neuroinit demo --out demo.png`

    Args:
        out: Where to write the figure.
        seeds: Number of seeds for every network.
        epochs: Length of every training.
        json: Print the table as JSON, for machines.
    """
    with needs_extra("demo"):
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
        from rich.console import Console

        from neuroinit.experiments.demo import demo as experiment
    for name, value in (("seeds", seeds), ("epochs", epochs)):
        if value < 1:
            raise ValueError(f"`--{name}` should be at least 1. Found `--{name} {value}`.")
    if not out.parent.is_dir():
        raise ValueError(f"`--out {out}`: there is no folder `{out.parent}`.")
    console = Console(stderr=json)
    begun = time.monotonic()
    pairs = _with_progress(console, experiment.run(seeds, epochs), seeds * len(experiment.NETWORKS))
    experiment.picture(pairs, out)
    rows = experiment.rows(pairs)
    if json:
        print(json_module.dumps({"rows": rows, "figure": str(out)}, indent=1))
        return
    title = f"Digits, SGD {experiment.LEARNING_RATE}, no warmup, {epochs} epochs"
    console.print(_table(rows, title))
    console.print(experiment.TEXT)
    console.print(f"Figure: {out}  ({time.monotonic() - begun:.0f} s)")


def report(result: Path, /, out: Path = Path("report.html"), json: bool = False) -> None:
    """Make a page about a saved result: words, tables and charts in one file for a browser.

    Example: `neuroinit report result.json --out report.html`

    Args:
        result: A file that `Result.save` wrote.
        out: Where to write the page; it needs no network.
        json: Print the summary as JSON, for machines.
    """
    if not result.is_file():
        raise ValueError(f"`{result}` is no file. Write one with `result.save(...)` first.")
    loaded = load_result(result)
    loaded.report(out)
    if json:
        after = loaded.after
        found = {"page": str(out), "steps": len(loaded.history), "norm": after and after.norm}
        print(json_module.dumps({**found, "cosine": after and after.cosine}, indent=1))
    else:
        print(f"{loaded}\nPage: {out}")


def _with_progress(console: Any, items: Any, total: int) -> list[Any]:
    from rich.progress import Progress

    found = []
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Training from both starts", total=total)
        for item in items:
            found.append(item)
            progress.advance(task)
    return found


def _table(rows: Sequence[dict[str, Any]], title: str) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE)
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
    previous = None
    for row in rows:
        if previous not in (None, row["network"]):
            table.add_section()
        name = "" if previous == row["network"] else row["network"]
        previous = row["network"]
        accuracies = " ".join(f"{100 * accuracy:.0f}" for accuracy in row["accuracy"])
        norm = "-" if row["gradient norm"] is None else f"{row['gradient norm']:.2g}"
        table.add_row(name, row["start"], norm, row["diverged"], f"{accuracies} %")
    return table


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "report": report,
    **commands.COMMANDS,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 if it worked, 1 with one line on standard error if not.

    `--debug` shows the traceback instead.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"neuroinit {__version__}")
        return 0
    debug = "--debug" in given
    try:
        with needs_extra("cli"):
            import tyro
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="neuroinit",
            description="Optimize the initialization of any PyTorch model before training it. "
            "`neuroinit COMMAND --help` tells more; `--debug` shows tracebacks; "
            "`--version` prints the version; "
            "`--tyro-print-completion bash` (or zsh) prints shell completion.",
            args=[argument for argument in given if argument != "--debug"],
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except KeyboardInterrupt:
        print("neuroinit: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        print(f"neuroinit: {error}", file=sys.stderr)
        return 1
    return 0
