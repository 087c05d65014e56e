"""Try all cases and record how they end."""

from __future__ import annotations

import importlib
import io
import signal
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout

import torch

from benchmarks.faults.users.checks import Broken, Case
from benchmarks.faults.users.record import GOOD, add, read
from neuroinit.experiments.vision import torchvision

MODULES = (
    "by_every_function",
    "trained_weights",
    "lightning_fits",
    "results",
    "custom_functions",
    "sharded",
    "batches",
    "detectors",
    "operators",
    "unusable",
    "hugging_face",
    "command",
    "originals",
)


def all_cases() -> Iterator[Case]:
    """The cases of all modules, which are imported one after the other."""
    torchvision()  # first, where it can be helped: the trainers import it, too
    for name in MODULES:
        yield from importlib.import_module(f"benchmarks.faults.users.{name}").cases()


def end_of(case: Case) -> str:
    """How a case ends."""
    nowhere = io.StringIO()  # for what trainers print
    with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            case.check()
        except Broken as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return GOOD


def try_all(only: str = "", every: int = 1, again: bool = False, recorded: bool = True) -> bool:
    """Try the cases that the record lacks; whether all of them end as promised.

    Args:
        only: A word in the name of a case, or ``item N``.
        every: Try every so many cases.
        again: Also try cases that did not end as promised.
        recorded: Add to the record.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known = read() if recorded else {}
    good = True
    for case in list(all_cases())[::every]:
        before = known.get((case.item, case.name))
        done = before is not None and (before == GOOD or not again)
        if done or only not in f"item {case.item} {case.name}":
            good &= before in (None, GOOD)
            continue
        end = end_of(case)
        good &= end == GOOD
        if recorded:
            add(case.item, case.name, end)
        if end != GOOD or not recorded:
            print(f"{case.item}: {case.name}: {end}", flush=True)
    return good
