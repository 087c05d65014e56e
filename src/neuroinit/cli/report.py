"""``neuroinit report``."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from neuroinit.run.results.loading import load_result


def report(result: Path, /, out: Path = Path("report.html"), json: bool = False) -> None:
    """Write a page for a browser about a saved result: a summary, tables and charts.

    The page is one file and needs no network.

    Example: `neuroinit report result.json --out report.html`

    Args:
        result: A file that `Result.save` wrote.
        out: File of the page.
        json: Print the summary as JSON.
    """
    if not result.is_file():
        raise ValueError(f"There is no file `{result}`. Write one with `result.save(...)` first.")
    loaded = load_result(result)
    loaded.report(out)
    if json:
        after = loaded.after
        found = {"page": str(out), "steps": len(loaded.history), "norm": after and after.norm}
        print(json_module.dumps({**found, "cosine": after and after.cosine}, indent=1))
    else:
        print(f"{loaded}\nPage: {out}")
