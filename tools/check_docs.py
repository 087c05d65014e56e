"""Check the documents: tables and figures are those of the records, examples run, links exist.

    make check-docs                             # everything
    make check-docs ARGS="--only links tables"  # a part

Tables and figures are made from the records of benchmarks (`make evidence`); a page has to have
each table line for line. The Python blocks of a page run one after the other, as one script, in an
empty folder.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.figures import check_figures

ROOT = Path(__file__).parents[1]
REFERENCE = "docs/api"  # has every public name
EXAMPLES = (
    "README.md",
    "docs/start/index.md",
    "docs/guide/will-it-help.md",
    "docs/guide/which-method.md",
    "docs/guide/no-data.md",
    "docs/guide/memory-and-speed.md",
    "docs/guide/trainers.md",
    "docs/how-it-works/agreement.md",
    "docs/paper/commands.md",
)
BEFORE_EXAMPLES = {  # the page loads what this command makes
    "docs/paper/commands.md": "init --model resnet-20-nobn --data digits --method nio:steps=1"
}
HARMLESS = (  # warnings of Lightning with tiny data and the newest torch
    ".*LeafSpec",
    ".*does not have many workers",
    ".*is smaller than the logging interval",
)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
FENCE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\"")


def documents() -> list[Path]:
    """All pages of the project."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])


def check_links() -> Iterator[str]:
    """Files and headings that a page links to exist."""
    for page in documents():
        name = page.relative_to(ROOT)
        for match in LINK.finditer(FENCE.sub("", page.read_text())):
            target = match[1] or match[2]
            if re.match(r"[a-z]+:", target):
                continue  # another site
            file, _, heading = target.partition("#")
            found = _target(page, file) if file else page
            if not found.exists():
                yield f"{name}: there is no `{target}`"
            elif heading and found.suffix == ".md" and heading not in _headings(found):
                yield f"{name}: `{target}` has no such heading"


def _target(page: Path, link: str) -> Path:
    """The file of a link; pages may be linked without suffix, and tutorials are made of scripts."""
    path = Path(os.path.normpath(page.parent / link))
    if path.parent == ROOT / "docs/gallery":
        header = "GALLERY_HEADER.rst" if path.name == "index" else f"{path.name}.py"
        return ROOT / "docs/tutorials" / header
    return path if path.suffix else next((p for p in _pages(path) if p.exists()), path)


def _pages(path: Path) -> list[Path]:
    return [path.with_suffix(suffix) for suffix in (".md", ".rst")]


def _headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def check_headline() -> Iterator[str]:
    """What the README claims stands in the conclusions of the evidence, number for number."""
    claims = (ROOT / "README.md").read_text().split("\n## ")[1]
    proven = set(NUMBER.findall((ROOT / "docs/evidence/index.md").read_text()))
    for number in NUMBER.findall(claims):
        if number not in proven:
            yield f"README.md: docs/evidence/index.md does not have the number {number}"


def check_names() -> Iterator[str]:
    """Every public name is documented."""
    import neuroinit

    pages = "\n".join(page.read_text() for page in (ROOT / REFERENCE).glob("*.rst"))
    for name in neuroinit.__all__:
        if name != "__version__" and not re.search(rf":: (neuroinit\.)?{name}\b", pages):
            yield f"{REFERENCE}: `{name}` is not documented"


def check_examples() -> Iterator[str]:
    """The Python blocks of a page run; a warning is an error."""
    from neuroinit.cli import main as command
    from neuroinit.experiments.vision import torchvision

    torchvision()  # first, where it can be helped: others import it, too
    for name in EXAMPLES:
        blocks = PYTHON.findall((ROOT / name).read_text())
        if not blocks:
            yield f"{name}: has no Python example"
        told = io.StringIO()
        with _empty_folder(), warnings.catch_warnings(), contextlib.redirect_stdout(told):
            if name in BEFORE_EXAMPLES:
                command(BEFORE_EXAMPLES[name].split())
            warnings.simplefilter("error")
            for message in HARMLESS:
                warnings.filterwarnings("ignore", message)
            try:
                exec(compile("\n".join(blocks), name, "exec"), {"__name__": "__main__"})
            except Exception as error:
                yield f"{name}: {type(error).__name__}: {error}"


def check_reference() -> Iterator[str]:
    """The examples that pages of the API reference add to those of docstrings run."""
    import neuroinit

    for page in sorted((ROOT / REFERENCE).glob("*.rst")):
        failed, _ = doctest.testfile(str(page), False, globs={"neuroinit": neuroinit})
        if failed:
            yield f"{page.relative_to(ROOT)}: {failed} examples do not give what they say"


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def check_tables() -> Iterator[str]:
    """Tables are those that benchmarks make of their records."""
    for page, make in TABLES:
        text = (ROOT / page).read_text()
        for block in make().split("\n\n"):
            if block.strip() not in text:
                missing = [line for line in block.splitlines() if line not in text.splitlines()]
                what = missing[0] if missing else f"(in another order) {block.splitlines()[0]}"
                yield f"{page}: the records say {what}"


def _trainability(suite_name: str, seeds: int = 3) -> str:
    """All methods but our present ones and the forms before, which have a page of their own."""
    from benchmarks.comparisons.unseen import PRESENT
    from benchmarks.trainability.contenders import METHODS
    from benchmarks.trainability.run import STARTS, jobs, read
    from benchmarks.trainability.standings import tables
    from benchmarks.trainability.suites import SUITES

    suite = SUITES[suite_name]
    forms = (
        "nio_ with branches",
        "nio_ with layers and branches",
        "nio_ with bounded learning",
        "auto_ by what is learned",
    )
    methods = [m for m in METHODS if m not in (*PRESENT, *forms)]
    wanted = jobs(suite, methods, ["*"], range(seeds))
    rows = [row for row in read(suite.results) if row["method"] in methods]
    rows = [row for row in rows if row["seed"] < seeds]
    return tables(rows, list(STARTS), wanted, suite.good)


def _bench() -> str:
    from benchmarks.cost.bench import FOLDER, key, read, table
    from benchmarks.cost.cases import full

    rows = {key(row): row for row in read(FOLDER / "bench.json")}
    order = [tuple(vars(case).values()) for case in full()]
    return table([rows[case] for case in order if case in rows])


def _methods() -> str:
    from benchmarks.methods.run import read, table

    return table(read())


def _defaults() -> str:
    from benchmarks.defaults.first_default import read, tables

    return tables(read())


def _layer_factors() -> str:
    from benchmarks.defaults import (
        agreement_ascent,
        auto_checks,
        candidates,
        late_divergence,
        layer_factors,
        races,
        rate_tables,
    )

    own = candidates.table(), candidates.shares(), rate_tables.table()
    deciding = races.table(), late_divergence.table(), auto_checks.table()
    return "\n\n".join([layer_factors.tables(), agreement_ascent.table(), *own, *deciding])


def _limits() -> str:
    from benchmarks.defaults import limits

    return f"{limits.table()}\n\n{limits.other_limits()}"


def _several_processes() -> str:
    from benchmarks.several_processes import differences, ranks

    return f"{differences.table()}\n\n{ranks.paper()}"


def _earlier_suites() -> str:
    from benchmarks.comparisons.unseen import tables

    return "\n\n".join(map(tables, ("fresh", "quadrants", "sequences", "letters")))


def _unseen() -> str:
    from benchmarks.comparisons.unseen import (
        SHOWN_SUITES,
        applied,
        by_start,
        overview,
        tables,
        thresholds,
    )

    suites = [tables(name, present=True) for name in SHOWN_SUITES]
    return "\n\n".join([overview(), *suites, by_start(), thresholds(), applied()])


def _zoo() -> str:
    from benchmarks.zoo import run as zoo

    records = [json.loads(line) for line in zoo.RECORDS.read_text().splitlines()]
    written = []
    for library in ("timm", "torchvision"):
        own = [record for record in records if record["library"] == library]
        section = zoo._section(library, own)
        written += [line for line in section if line.startswith(zoo.MOVEMENT)] + [""]
        written += [line for line in section if line.startswith("|")]
        written.append("")
    return "\n".join(written)


def _faults() -> str:
    from benchmarks.faults.record import read, table
    from benchmarks.faults.users import record as users

    return f"{table(read())}\n\n{users.table()}"


def _agreement() -> str:
    from benchmarks.agreement import ascent, measure_table

    return (
        f"{measure_table.table()}\n\n{ascent.table()}" if ascent.read() else measure_table.table()
    )


def _gains() -> str:
    from benchmarks.comparisons.gains import tables

    return tables()


def _cosine() -> str:
    from benchmarks.cosine.run import read
    from benchmarks.cosine.tables import tables

    return tables(read())


def _theory() -> str:
    from benchmarks.theory.run import read
    from benchmarks.theory.tables import tables

    return tables(read())


def _text() -> str:
    from benchmarks.text.grid import read
    from benchmarks.text.tables import tables

    return tables(read())


def _medium() -> str:
    from benchmarks.medium.run import read
    from benchmarks.medium.tables import tables

    return tables(read())


def _figure3() -> str:
    from benchmarks.paper.figure3 import table

    return table()


def _printed() -> str:
    """What commands of `neuroinit reproduce` wrote; the runs behind these tables were not kept."""
    files = sorted((ROOT / "benchmarks/paper/printed").glob("*.md"))
    return "\n\n".join(file.read_text().strip() for file in files)


# pages whose tables `make evidence` writes
MARKED: dict[str, Callable[[], str]] = {
    "docs/evidence/trainability.md": _unseen,
    "docs/evidence/earlier-defaults.md": _gains,
    "docs/evidence/cosine.md": _cosine,
    "docs/evidence/theory.md": _theory,
    "docs/evidence/text.md": _text,
    "docs/evidence/medium.md": _medium,
    "docs/paper/results.md": _figure3,
}
TABLES: tuple[tuple[str, Callable[[], str]], ...] = (
    *MARKED.items(),
    ("docs/evidence/earlier-defaults.md", lambda: _trainability("digits")),
    ("docs/evidence/earlier-defaults.md", lambda: _trainability("other", 1)),
    ("docs/evidence/earlier-defaults.md", _earlier_suites),
    ("docs/evidence/performance.md", _bench),
    ("docs/evidence/methods.md", _methods),
    ("docs/evidence/earlier-defaults.md", _defaults),
    ("docs/evidence/defaults.md", _layer_factors),
    ("docs/evidence/defaults.md", _limits),
    ("docs/guide/several-processes.md", _several_processes),
    ("docs/evidence/zoo.md", _zoo),
    ("docs/evidence/agreement.md", _agreement),
    ("docs/evidence/faults.md", _faults),
    ("docs/paper/results.md", _printed),
)
CHECKS: dict[str, Callable[[], Iterator[str]]] = {
    "links": check_links,
    "headline": check_headline,
    "names": check_names,
    "tables": check_tables,
    "figures": lambda: check_figures(ROOT),
    "reference": check_reference,
    "examples": check_examples,
}


def main() -> int:
    """Print what is wrong; the exit code is 1 if anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    wrong = 0
    for name in parser.parse_args().only:
        found = list(CHECKS[name]())
        wrong += len(found)
        print(f"{name}: {'as it should be' if not found else f'{len(found)} to mend'}", flush=True)
        for line in found:
            print(f"  {line}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
