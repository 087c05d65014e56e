"""Results that are applied twice or elsewhere, and what they say about a bound."""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from benchmarks.faults.users.checks import Case, refused, sure, told, unchanged, untold
from benchmarks.faults.users.small import data, network

BOUND = {"rule": ni.HeldNorm(), "gamma": 0.3, "steps": 3}
METHODS: dict[str, ni.Initialization] = {
    "NIO with a bound": ni.NIO(**BOUND),
    "NIO.paper": ni.NIO.paper(steps=2, lr=0.01),
    "NIO.reference": ni.NIO.reference(steps=2),
    "GradInit": ni.GradInit(steps=2),
    "MetaInit": ni.MetaInit(steps=2),
}
WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "the model": lambda model: model,
    "DataParallel": nn.DataParallel,
    "a compiled model": torch.compile,
}


def twice(method: ni.Initialization, wrap: Callable[[nn.Module], nn.Module]) -> None:
    """A second ``apply_`` is an error, and changes nothing."""
    model = network()
    result = ni.optimize(model, data(), method=method)
    result.apply_(model)
    wrapped = wrap(model)
    with unchanged(model), refused(ValueError, "was applied to this model before"):
        result.apply_(wrapped)


IN_PLACE: dict[str, Callable[[nn.Module], ni.Result]] = {
    "`nio_`": lambda m: ni.nio_(m, data(), **BOUND),
    "`gradinit_`": lambda m: ni.gradinit_(m, data(), steps=2),
    "`metainit_`": lambda m: ni.metainit_(m, data(), steps=2),
    "`nio_` with an optimizer": lambda m: ni.nio_(
        m, data(), optimizer=torch.optim.SGD(m.parameters(), lr=1e-3), verify=False, **BOUND
    ),
}


def after_in_place(call: Callable[[nn.Module], ni.Result]) -> None:
    """A function that works in place has applied its result."""
    model = network()
    result = call(model)
    with unchanged(model), refused(ValueError, "was applied to this model before"):
        result.apply_(model)


def after_file() -> None:
    """The same for a result that was saved and loaded."""
    model = network()
    with tempfile.TemporaryDirectory() as folder:
        ni.nio_(model, data(), **BOUND).save(Path(folder, "result.json"))
        loaded = ni.load_result(Path(folder, "result.json"))
    with unchanged(model), refused(ValueError, "was applied to this model before"):
        loaded.apply_(model)


def after_auto() -> None:
    """The same for the winner of ``auto_``."""
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 30
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    choice = ni.auto_(model, data(32, 12), optimizer=sgd, candidates={"NIO": ni.NIO(**BOUND)})
    sure(choice.results, "nothing was applied")
    with unchanged(model), refused(ValueError, "was applied to this model before"):
        choice.results[0].apply_(model)


def _seed(model: nn.Module) -> None:
    for layer in (model[0], model[-1]):
        layer.reset_parameters()


def _one_tensor(model: nn.Module) -> None:
    nn.init.normal_(model[2].weight)


def _trained(model: nn.Module) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(data()[0][0]), data()[0][1]).backward()
    sgd.step()
    sgd.zero_grad()


def _one_entry(model: nn.Module) -> None:
    with torch.no_grad():
        model[0].bias[3] += 1e-9


OTHERS = {
    "another seed": _seed,
    "one other tensor": _one_tensor,
    "after a training step": _trained,
    "one other entry": _one_entry,
}


def elsewhere(change: Callable[[nn.Module], None], method: ni.Initialization) -> None:
    """A model with another start gets the scales, and a warning."""
    result, model = ni.optimize(network(), data(), method=method), network()
    change(model)
    with unchanged(model, but=("parameters",)), told("has other values than", times=1):
        result.apply_(model)


def twin(make: Callable[[], nn.Module]) -> None:
    """A copy, or the same seed again: no word."""
    result, model = ni.optimize(network(), data(), method=ni.NIO(**BOUND)), make()
    with unchanged(model, but=("parameters",)), untold():
        result.apply_(model)


def drawn() -> None:
    """Values that are drawn can be drawn again: the same ones."""
    model = network()
    result = ni.kaiming_(model)
    with unchanged(model), untold():
        result.apply_(model)


def left_alone() -> None:
    """A network that works is left alone, as often as one likes."""
    model = network()
    result = ni.nio_(model, data())
    sure(set(result.scales.values()) == {1.0}, "it was changed")
    with unchanged(model), untold():
        result.apply_(model)


# -- what is said about the bound ------------------------------------------------------------------


@contextmanager
def logged() -> Iterator[list[str]]:
    """The messages of the library's log."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("neuroinit")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def said(method: ni.Initialization, most: bool) -> None:
    """Steps are called above or within the bound by their norm, in the log and when printed."""
    model = network()
    with unchanged(model), logged() as lines:
        result = ni.optimize(model, data(count=8), method=method)
    above = [(r.norm_max if most else r.norm) > method.gamma for r in result.history]  # type: ignore[attr-defined]
    sure([r.constrained for r in result.history] == above, "another step is marked")
    steps = [line for line in lines if line.startswith("Step ")]
    sure(["above the bound" in line for line in steps] == above, "the log says otherwise")
    text = f"exceeded in {sum(above)} of {len(above)} steps"
    sure(text in repr(result), f"{result!r}")


def not_reached(method: ni.Initialization, factor: float) -> None:
    """Weights far too large, and too few steps: a warning."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    with unchanged(model), told("far above the bound `gamma ="):
        ni.optimize(model, data(), method=method)


def _bounded(name: str, gamma: float, steps: int) -> Any:
    return {
        "NIO with a bound": lambda: ni.NIO(rule=ni.HeldNorm(), gamma=gamma, steps=steps),
        "NIO.paper": lambda: ni.NIO.paper(gamma=gamma, steps=steps, lr=0.01),
        "NIO.reference": lambda: ni.NIO.reference(gamma=gamma, steps=steps),
        "GradInit": lambda: ni.GradInit(gamma=gamma, steps=steps),
    }[name]()


def cases() -> Iterator[Case]:
    """Items 3 and 11."""
    for name, method in METHODS.items():
        for wrapper, wrap in WRAPPERS.items():
            yield Case(3, f"{name}, twice: {wrapper}", partial(twice, method, wrap))
        for other, change in OTHERS.items():
            if (name, other) != ("MetaInit", "one other entry"):  # it does not scale biases
                yield Case(3, f"{name}: {other}", partial(elsewhere, change, method))
    for name, call in IN_PLACE.items():
        yield Case(3, f"after {name}", partial(after_in_place, call))
    yield Case(3, "after `nio_`, from a file", after_file)
    yield Case(3, "after `auto_`", after_auto)
    yield Case(3, "the same seed", partial(twin, network))
    yield Case(3, "a deep copy", partial(twin, lambda: copy.deepcopy(network())))
    yield Case(3, "values that were drawn", drawn)
    yield Case(3, "a network that was left alone", left_alone)
    for name in ("NIO with a bound", "NIO.paper", "NIO.reference", "GradInit"):
        for gamma in (0.1, 0.4, 0.45, 0.5, 2.0):
            method = _bounded(name, gamma, 8)
            yield Case(11, f"{name}, gamma = {gamma}", partial(said, method, name == "NIO.paper"))
        for factor in (1e3, 1e6):
            method = _bounded(name, 1.0, 1)
            yield Case(
                11, f"{name}, weights times {factor:g}", partial(not_reached, method, factor)
            )
