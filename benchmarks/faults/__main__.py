"""Inject faults, count how they end, and write the record behind the table in the documents.

    make faults                     # all, some minutes; goes on where it was stopped
    make faults ARGS="--again"      # from the beginning
    make faults ARGS="--quick"      # a few of each; the record stays as it is
    make faults ARGS="--only ranks" # faults whose name or place has this word
    make faults ARGS="--users"      # only what a new user tries, case by case
    make faults ARGS="--failed"     # cases of a new user that did not end as promised, again

Every kind of fault is a line of the record, and so is every case of a new user. The tables in
``docs/evidence/faults.md`` follow.
Exits with 1 if a fault did not end as promised.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.faults import files, several, single
from benchmarks.faults.record import PATH, Row, add, read, table, write_page
from benchmarks.faults.users import record as users_record
from benchmarks.faults.users.attempts import try_all

Attempts = Callable[[int, int], Counter[str]]  # of a count and a seed


def jobs() -> list[tuple[str, str, int, Attempts]]:
    """Fault, where, how often, and the function that tries it."""
    several_ranks: list[tuple[str, str, int, Attempts]] = []
    for n in (2, 3):
        where = f"{n} ranks"
        several_ranks += [
            ("exception on one rank", where, 30, partial(several.exceptions, n)),
            ("Ctrl-C on one rank", where, 30, partial(several.interrupts, n, False)),
            ("Ctrl-C on all ranks", where, 30, partial(several.interrupts, n, True)),
        ]
    return [
        *(("exception", f"in {at}", 40, partial(single.exceptions, at)) for at in single.PLACES),
        *(
            ("Ctrl-C or SIGTERM", f"at any line of `{name}`", 100, partial(single.interrupts, name))
            for name in single.INTERRUPTED
        ),
        ("memory runs out", "room for 2 to 5 samples", 20, single.memory),
        ("SIGKILL, then the same call", "at any time, 4 methods", 24, files.kills),
        ("damaged file", "result", 300, files.results),
        ("damaged file", "checkpoint", 200, files.checkpoints),
        ("checkpoint of another run", ", ".join(files.OTHERS), 5, files.others),
        ("full disk", "result", 20, files.full_disk),
        *several_ranks,
        ("SIGKILL of one rank", "2 ranks", 3, several.kills),
        ("memory runs out on one rank", "2 ranks", 12, several.memory),
        ("exception in a pass", "FSDP2, 2 ranks", 24, several.sharded),
        *(
            (
                f"Ctrl-C on {who}",
                "FSDP2, 2 ranks",
                30,
                partial(several.interrupts, 2, every, is_sharded=True),
            )
            for who, every in (("one rank", False), ("all ranks", True))
        ),
    ]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few of each fault; no record")
    parser.add_argument("--only", default="", help="a word in the name or the place of a fault")
    parser.add_argument("--again", action="store_true", help="start a new record")
    parser.add_argument("--users", action="store_true", help="only what a new user tries")
    parser.add_argument("--failed", action="store_true", help="failed cases of a new user, again")
    parser.add_argument("--table", action="store_true", help="write the table and run nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the random sample")
    options = parser.parse_args()
    if options.table:
        write_page()
        return 0
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    if options.again:
        PATH.unlink(missing_ok=True)
        users_record.PATH.unlink(missing_ok=True)
    only_users = options.users or options.failed
    good = only_users or _inject(options)
    every = 20 if options.quick else 1
    good &= try_all(options.only, every, options.failed, recorded=not options.quick)
    if not options.quick:
        write_page()
        print(users_record.table())
    return int(not good)


def _inject(options: argparse.Namespace) -> bool:
    """Inject faults that the record lacks; whether all end as promised."""
    rows = [] if options.quick else read()
    for fault, where, count, attempt in jobs():
        known = any((row.fault, row.where) == (fault, where) for row in rows)
        if known or options.only not in f"{fault} {where}":
            continue
        begun = time.perf_counter()
        found = attempt(max(2, count // 10) if options.quick else count, options.seed)
        rows.append(Row(fault, where, sum(found.values()), found[single.GOOD], dict(found)))
        print(f"{rows[-1]} {time.perf_counter() - begun:.0f} s", flush=True)
        if not options.quick:
            add(rows[-1])
    print(table(rows))
    return all(row.good == row.tried for row in rows)


if __name__ == "__main__":
    sys.exit(main())
