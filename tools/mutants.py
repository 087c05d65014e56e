"""Do the tests notice mistakes? A random sample of small changes, and which of them tests catch.

    make mutants                                                 # 100 mutants; resumable
    make mutants ARGS="--count 20 --seed 1 --only gradients"     # fewer, of one folder
    make mutants ARGS="--list"                                   # show the sample, run nothing

A mutant is the source with one change: an operator swapped, a constant changed, a condition negated
or a statement removed (`tools/mutations.py`). It is *killed* if a test fails. First, all tests of
the nearest folders run once to see which lines each of them reaches. Then a mutant meets the tests
that reach its line, quick ones first, up to `--budget` seconds of processor time. Both are kept in
`.mutants/`: nothing is done twice as long as a source file is unchanged, except that survivors are
tried again when the tests have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import queue
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.mutations import Mutant, mutants
from tools.workspace import ROOT, Reach, Workspace, fingerprint

FOLDERS = ("gradients", "model", "methods", "kernels")
NEAREST = (*FOLDERS, "sharded", "run", "choose", "distributed")  # folders of tests
NOTES = ROOT / ".mutants"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

Record = dict[str, Any]


def all_mutants(folders: Iterable[str]) -> dict[Mutant, tuple[str, str]]:
    """Of every file of these folders, without those that are known to change nothing.

    Returns:
        Mutant -> its line before and after.
    """
    known = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    left_out = {(m["file"], m["before"], m["after"]) for m in known}
    found = {}
    for folder in folders:
        for path in sorted((ROOT / "src/neuroinit" / folder).rglob("*.py")):
            name, source = path.relative_to(ROOT).as_posix(), path.read_bytes()
            for mutant in mutants(name, source):
                lines = mutant.changed_line(source)
                if (name, *lines) not in left_out:
                    found[mutant] = lines
    return found


def draw(everything: dict[Mutant, tuple[str, str]], count: int, seed: int) -> list[Mutant]:
    """A random sample that hardly changes when mutants come or go.

    Every mutant has a random number of its own, made of the seed and its line before and after; the
    lowest are drawn. So a changed line of a source, or an entry of ``equivalent.toml``, replaces
    its own mutants only: a survivor stays in the sample until it dies.
    """
    seen: Counter[str] = Counter()
    numbers = {}
    for mutant, (before, after) in everything.items():
        text = "\n".join([str(seed), mutant.file, before, after])
        numbers[mutant] = hashlib.sha256(f"{text}\n{seen[text]}".encode()).hexdigest()
        seen[text] += 1
    drawn = sorted(numbers, key=lambda mutant: numbers[mutant])[:count]
    return sorted(drawn, key=lambda mutant: (mutant.file, mutant.start))


def reached(workers: int) -> Reach:
    """Which test reaches which lines; what was known of an unchanged file is used again."""
    path = NOTES / "reach.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    helpers = [f for f in (ROOT / "tests").rglob("*.py") if not f.name.startswith("test_")]
    shared = [ROOT / "src", *sorted(helpers)]
    files = [f for folder in NEAREST for f in sorted((ROOT / "tests" / folder).rglob("test_*.py"))]
    wanted = {f.relative_to(ROOT).as_posix(): fingerprint(f, *shared) for f in files}
    kept = {f: known[f] for f, mark in wanted.items() if known.get(f, {}).get("of") == mark}
    missing = [f for f in wanted if f not in kept]
    lock = threading.Lock()

    def look(space: Workspace, file: str) -> None:
        found = space.reach(file)
        with lock:
            kept[file] = {"of": wanted[file], "tests": found}
            path.write_text(json.dumps(kept))
        print(f"  {file}: {len(found)} tests", flush=True)

    if missing:
        print(f"Which lines do the tests of {len(missing)} files reach?", flush=True)
        _in_parallel(look, missing, workers)
    return {test: found for file in wanted for test, found in kept[file]["tests"].items()}


def chosen(mutant: Mutant, reach: Reach, budget: float) -> dict[str, float]:
    """The tests that reach a mutant, quick ones and those of its own folder first.

    What lies outside of functions runs once, when a file is imported: there, all tests that reach
    the file count, and all of its folder.
    """
    near = "tests/" + mutant.file.removeprefix("src/neuroinit/").partition("/")[0]
    found = []
    for test, what in reach.items():
        lines = what["lines"].get(mutant.file, [])
        if mutant.line in lines or (not mutant.inside and (lines or test.startswith(near))):
            seconds = what["seconds"]
            found.append((seconds > 1, not test.startswith(near), seconds, test))
    tests: dict[str, float] = {}
    for *_, seconds, test in sorted(found):
        if sum(tests.values()) + seconds <= budget or not tests:
            tests[test] = seconds
    return tests


def try_all(sample: list[Mutant], reach: Reach, budget: float, workers: int) -> list[Record]:
    """A record for every mutant; what is known already is taken from the notes."""
    path = NOTES / "results.jsonl"
    known = [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []
    tests_now = fingerprint(ROOT / "tests")
    done = {r["key"]: r for r in known if r["status"] == "killed" or r["tests_of"] == tests_now}
    facts = {mutant: _facts(mutant) for mutant in sample}
    missing = [mutant for mutant in sample if facts[mutant]["key"] not in done]

    def run(space: Workspace, mutant: Mutant) -> None:
        begun, tests = time.monotonic(), chosen(mutant, reach, budget)
        found = space.try_out(mutant, tests) if tests else {"status": "not reached"}
        spent = {"seconds": round(time.monotonic() - begun, 1), "tests_of": tests_now}
        record = {**facts[mutant], "tests": len(tests), **spent, **found}
        done[record["key"]] = record
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        count = sum(fact["key"] in done for fact in facts.values())
        print(f"  {count}/{len(sample)} {_line(record)}", flush=True)

    if missing:
        quick = sorted(reach, key=lambda test: float(reach[test]["seconds"]))[:20]
        space = Workspace.of(ROOT)
        space.check(missing[0].file, {test: reach[test]["seconds"] for test in quick})
        space.remove()
    _in_parallel(run, missing, workers)
    return [done[fact["key"]] for fact in facts.values()]


def _facts(mutant: Mutant) -> Record:
    """What a record says of a mutant; its key belongs to the file as it is now."""
    path = ROOT / mutant.file
    before, after = mutant.changed_line(path.read_bytes())
    key = f"{mutant.file}:{fingerprint(path)}:{mutant.start}:{mutant.end}:{mutant.new}"
    place = {"file": mutant.file, "line": mutant.line, "kind": mutant.kind}
    return {"key": key, **place, "before": before, "after": after}


def _in_parallel(do: Callable[[Workspace, Any], None], jobs: list[Any], workers: int) -> None:
    """``do(space, job)`` for all jobs, each worker with a copy of the project for itself."""
    free: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
    spaces = [Workspace.of(ROOT) for _ in range(min(workers, len(jobs)))]
    for space in spaces:
        free.put(space)

    def with_space(job: Any) -> None:
        space = free.get()
        try:
            do(space, job)
        finally:
            free.put(space)

    try:
        with ThreadPoolExecutor(max(1, len(spaces))) as pool:
            list(pool.map(with_space, jobs))
    finally:
        for space in spaces:
            space.remove()


def _line(record: Record) -> str:
    told = f"{record['status']:<11} {record['seconds']:>5} s  {record['file']}:{record['line']}"
    return told + (f"  by {record['by']}" if "by" in record else "")


def summary(records: list[Record]) -> str:
    """How many died in every folder and of every kind, and the others with their change."""
    lines = [f"{'':<24}{'killed':>8}{'of':>6}"]
    for field in ("folder", "kind"):
        group = {r["key"]: r["kind"] if field == "kind" else _folder(r) for r in records}
        total = Counter(group.values())
        killed = Counter(group[r["key"]] for r in records if r["status"] == "killed")
        lines += [f"{name:<24}{killed[name]:>8}{total[name]:>6}" for name in sorted(total)]
        lines += [""]
    dead = sum(r["status"] == "killed" for r in records)
    lines += [f"{'all':<24}{dead:>8}{len(records):>6}"]
    for r in records:
        if r["status"] != "killed":
            what = f"{r['status']}, {r['tests']} tests, {r['kind']}"
            lines += ["", f"{r['file']}:{r['line']}  ({what})"]
            lines += [f"  - {r['before']}", f"  + {r['after']}"]
    return "\n".join(lines)


def _folder(record: Record) -> str:
    return str(record["file"]).removeprefix("src/neuroinit/").partition("/")[0]


def main() -> None:
    """Draw, run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", nargs="+", default=FOLDERS, choices=FOLDERS, metavar="FOLDER")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests a mutant")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="show the sample, run nothing")
    args = parser.parse_args()
    everything = all_mutants(args.only)
    sample = draw(everything, args.count, args.seed)
    print(f"{len(sample)} of {len(everything)} mutants, seed {args.seed}", flush=True)
    if args.list:
        for m in sample:
            before, after = m.changed_line((ROOT / m.file).read_bytes())
            print(f"{m.file}:{m.line}  ({m.kind})\n  - {before}\n  + {after}")
        return
    NOTES.mkdir(exist_ok=True)
    reach = reached(args.workers)
    print(summary(try_all(sample, reach, args.budget, args.workers)))


if __name__ == "__main__":
    main()
