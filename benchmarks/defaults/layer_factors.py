"""Should `nio_` try one factor for every layer? Short trainings, agreement and outcomes.

    python -m benchmarks.defaults.layer_factors run 3      # seed 3, appends to layer_factors.jsonl
    python -m benchmarks.defaults.layer_factors table      # for docs/evidence/defaults.md

What decisions are made by: the networks of the suite ``digits``, and of its images only those for
training. 1,137 of them train, and 300 others tell the accuracy. No test image takes part.

``own`` is the start, ``whole`` the result of `NIO()` for the optimizer, ``half`` the same with its
log-scales halved, ``layers`` unit variance of every layer's output. Each is trained for 12 steps,
at the optimizer's rate and at twice that, and then for six epochs.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from benchmarks.trainability.run import BATCH, STARTS, area
from benchmarks.trainability.suites import SUITES
from neuroinit.experiments.data.split import Split
from neuroinit.experiments.training.simple_loop import train
from neuroinit.model.problem import Problem
from neuroinit.run.rollout import Rollout, lead, mean, split_batches

RESULTS = Path(__file__).with_name("layer_factors.jsonl")
SUITE, TRAINED, STEPS, GOOD = SUITES["digits"], 1137, 12, 0.9
NOT_FINITE = 1e9  # in place of a loss
Row = dict[str, Any]


def data() -> Split:
    """The training images of digits, in two parts."""
    inputs, targets = SUITE.data("").train
    return Split((inputs[:TRAINED], targets[:TRAINED]), (inputs[TRAINED:], targets[TRAINED:]))


def rows_of(network: str, start: str, seed: int) -> Iterable[Row]:
    """One network from one start, with every optimizer."""
    split = data()
    batches = split.batches(64, BATCH, 100 + seed)
    torch.manual_seed(seed)
    model = SUITE.networks[network]()
    STARTS[start](model, batches)
    layers = ni.optimize(model, batches, method=ni.LSUV(redraw=False), progress=False)
    sides = [side.agreement if side else math.nan for side in (layers.before, layers.after)]
    for name, make in SUITE.optimizers.items():
        row: Row = {"network": network, "start": start, "seed": seed, "optimizer": name}
        row["agreement"] = [round(a, 4) for a in sides]
        options = {"verify": False, "progress": False}
        found = ni.nio_(copy.deepcopy(model), batches, optimizer=make, **options)
        factor = max(found.scales.values(), key=lambda w: abs(math.log(w)))
        row |= {"s": found.history[0].value, "factor": factor}
        arms = {"own": model, "layers": scaled(model, layers.scales)}
        if set(found.scales.values()) != {1.0}:
            arms["whole"] = scaled(model, found.scales)
            arms["half"] = scaled(model, found.scales, 0.5)
        for arm, changed in arms.items():
            row[arm] = _outcome(changed, make, split, batches, seed)
        yield row


def scaled(model: nn.Module, scales: dict[str, float], share: float = 1.0) -> nn.Module:
    """A copy whose parameters are multiplied by a share of the log-scales."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.mul_(scales.get(name, 1.0) ** share)
    return twin


def faster(make: Any, rate: float) -> Any:
    """The same optimizer with a multiple of its learning rate."""

    def made(parameters: Any) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = make(parameters)
        for group in optimizer.param_groups:
            group["lr"] *= rate
        return optimizer

    return made


def _outcome(model: nn.Module, make: Any, split: Split, batches: Any, seed: int) -> Row:
    """Validation losses after short trainings, and accuracy and area of the long one."""
    problem = Problem(model, F.cross_entropy, None)
    validation, training = split_batches(batches[:16], 2)
    found: Row = {}
    for key, rate in (("once", 1.0), ("twice", 2.0)):
        rollout = Rollout(problem, problem.original, faster(make, rate))
        rollout.train(itertools.cycle(training), STEPS)
        losses = rollout.outcome(validation).losses
        found[key] = [x if math.isfinite(x) else NOT_FINITE for x in losses]
        found.setdefault("first", rollout.losses[0])
    torch.manual_seed(seed)
    options = {"epochs": SUITE.epochs, "batch_size": BATCH, "seed": seed}
    trained = train(copy.deepcopy(model), split, **options, make_optimizer=make)
    steps = SUITE.epochs * (len(split.train[0]) // BATCH)
    return {**found, "accuracy": round(trained.accuracy, 4), "area": round(area(trained, steps), 4)}


# -- decisions -------------------------------------------------------------------------------------


def decided(row: Row, second: Callable[[Row], str | None], excused: bool = False) -> str:
    """What `nio_` applies, if ``second`` names what is tried besides the whole result.

    ``excused``: what replaces a start that the rule calls broken only must not be worse.
    """
    other = second(row)
    arms = [arm for arm in ("whole", other) if arm in row]
    own = row["own"]["once"]
    diverges = mean(own) >= NOT_FINITE or mean(own) > 2 * abs(row["own"]["first"])
    if not arms:
        return "own"
    best = min(arms, key=lambda arm: mean(row[arm]["once"]))
    losses = row[best]["once"]
    if max(losses) >= NOT_FINITE or diverges:
        return best if max(losses) < NOT_FINITE else "own"
    errors = -2.0 if excused and "whole" in row else 2.0
    confirmed = ahead(own, losses, errors) and ahead(own, row[best]["twice"], min(errors, 0.0))
    return best if confirmed else "own"


def ahead(own: list[float], losses: list[float], errors: float) -> bool:
    """Whether losses are finite, and lower than the start's by so many standard errors."""
    gain, noise = lead(own, losses)
    return max(losses) < NOT_FINITE and gain >= errors * noise


def _risen(row: Row) -> bool:
    before, after = row["agreement"]
    return bool(after > before)


def _second(row: Row) -> str:
    return "layers" if _risen(row) else "half"


CHOICES: dict[str, Callable[[Row], str]] = {
    "as it is": lambda row: "own",
    "the result, always": lambda row: "whole" if "whole" in row else "own",
    "one factor a layer, always": lambda row: "layers",
    "verified: the result, or half of it": lambda row: decided(row, lambda r: "half"),
    "verified: the result, or one factor a layer": lambda row: decided(row, lambda r: "layers"),
    "the same, if the agreement rises; else half": lambda row: decided(row, _second),
    "**the same; a broken start is replaced unless the new one is worse**": lambda row: decided(
        row, _second, True
    ),
}


LIMITS = (0.0, 0.03, 0.1, 0.3, 1.0, math.inf)


def tables() -> str:
    """Markdown: a line a way to decide; then a line a range of sensitivities."""
    return f"{_decisions()}\n\n{_limits()}"


def _limits() -> str:
    """Cells that train as they are and after the factor, by sensitivity ``s``."""
    lines = [
        "| | cells | train as they are | with one factor for all weights |",
        "|---|---|---|---|",
    ]
    rows = read()
    groups = {"explode, or promise too much": [row for row in rows if row["factor"] < 1]}
    for low, high in itertools.pairwise(LIMITS):
        own = [row for row in rows if row["factor"] >= 1 and low <= row["s"] < high]
        groups[f"`s` from {low:g} to {high:g}" if high < math.inf else f"`s` above {low:g}"] = own
    for name, own in groups.items():
        before = sum(row["own"]["accuracy"] >= GOOD for row in own)
        after = [row["whole"]["accuracy"] >= GOOD for row in own if "whole" in row]
        lines.append(f"| {name} | {len(own)} | {before} | {sum(after) if after else '-'} |")
    return "\n".join(lines)


def _decisions() -> str:
    rows = read()
    best = sum(any(row[arm]["accuracy"] >= GOOD for arm in _arms(row)) for row in rows)
    networks = len({row["network"] for row in rows})
    lines = [
        f"| {len(rows)} cells of {networks} networks; {best} train by one of the four | train "
        "| rescued | made worse | area under the loss |",
        "|---|---|---|---|---|",
    ]
    for name, choose in CHOICES.items():
        pairs = [(row[choose(row)], row["own"]) for row in rows]
        trains = [(a["accuracy"] >= GOOD, b["accuracy"] >= GOOD) for a, b in pairs]
        lines.append(
            f"| {name} | {sum(a for a, _ in trains)} | {sum(a > b for a, b in trains)} | "
            f"{sum(a < b for a, b in trains)} | {mean([a['area'] for a, _ in pairs]):.2f} |"
        )
    return "\n".join(lines)


def _arms(row: Row) -> list[str]:
    return [arm for arm in ("own", "layers", "whole", "half") if arm in row]


def read() -> list[Row]:
    """All records so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def main() -> None:
    """Run what is missing for a seed, or print the table."""
    if sys.argv[1] == "table":
        print(tables())
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    seed = int(sys.argv[2])
    done = {(r["network"], r["start"], r["seed"]) for r in read()} if RESULTS.exists() else set()
    for network, start in itertools.product(SUITE.networks, STARTS):
        if (network, start, seed) not in done:
            lines = [json.dumps(row) + "\n" for row in rows_of(network, start, seed)]
            with RESULTS.open("a") as file:
                file.writelines(lines)


if __name__ == "__main__":
    main()
