"""What should `nio_` try before it changes a model? Short trainings and outcomes of candidates.

    python -m benchmarks.defaults.candidates run text TEXT          # appends to candidates.jsonl
    python -m benchmarks.defaults.candidates run fresh folder:CIFAR10
    python -m benchmarks.defaults.candidates run letters TEXT
    python -m benchmarks.defaults.candidates table                  # for docs/evidence/defaults.md

What the candidates and the way to decide were chosen by: the networks of ``fresh``, and character
GPTs, with seeds that no other table has. Of the images only those for training are used, a fifth of
which tell the accuracy; of the text the part for choices.

``own`` is the start, ``whole`` the result of `NIO()` for the optimizer, ``half`` the same with its
log-scales halved, ``layers`` unit variance of every layer's output, ``LSUV`` the same with fresh
orthonormal values, ``small`` the ends of residual branches divided by the root of their number,
and ``zero`` these ends times 0.05. Each is trained for 12 steps, for 18 steps at twice the rate,
and then to the end. ``learned`` is by how much the loss is lower than with the targets of other
samples.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from benchmarks.defaults.layer_factors import NOT_FINITE, ahead, faster, scaled
from benchmarks.text import grid
from benchmarks.text.char_gpt import GPT, batches, text
from benchmarks.trainability.run import BATCH, STARTS
from benchmarks.trainability.suites import SUITES
from neuroinit.experiments.data.split import Split
from neuroinit.experiments.training.simple_loop import train
from neuroinit.methods.small_branches import SmallBranches
from neuroinit.model.problem import Problem
from neuroinit.run.rollout import NOTHING, Rollout, lead, mean, split_batches

RESULTS = Path(__file__).with_name("candidates.jsonl")
SEEDS = (4, 5)
NEAR_ZERO = 0.05
GOOD = {"text": 3.0, "fresh": 0.25, "letters": 0.25}  # test loss, accuracy
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model with its data.

    Args:
        names: Of the network, the start and the seed.
        model: As it is.
        batches: What methods and short trainings see.
        loss_fn: Of output and target.
        optimizers: By name.
        end: Trains a model with an optimizer to the end; accuracy or loss.
    """

    names: Row
    model: nn.Module
    batches: list[Any]
    loss_fn: Any
    optimizers: dict[str, Any]
    end: Any


def image_cases(name: str, source: str, seed: int) -> Iterator[Case]:
    """Networks of a suite from four starts; a fifth of the training images tells the accuracy."""
    suite = SUITES[name]
    inputs, targets = suite.data(source).train
    place = torch.arange(len(inputs))
    held = place >= len(inputs) * 4 // 5
    if name == "quadrants":  # sorted by class; an image is there four times, 800 places apart
        held = place % 5 == 4
    split = Split((inputs[~held], targets[~held]), (inputs[held], targets[held]))
    for network, start in itertools.product(suite.networks, list(STARTS)[:4]):
        data = split.batches(64, BATCH, 100 + seed)
        torch.manual_seed(seed)
        model = suite.networks[network]()
        STARTS[start](model, data)

        def end(changed: nn.Module, make: Any) -> Row:
            torch.manual_seed(seed)
            options = {"epochs": suite.epochs, "batch_size": BATCH, "seed": seed}
            found = train(changed, split, **options, make_optimizer=make)
            return {"accuracy": round(found.accuracy, 4)}

        names = {"suite": name, "network": network, "start": start, "seed": seed}
        yield Case(names, model, data, F.cross_entropy, suite.optimizers, end)


def text_cases(path: str, seed: int) -> Iterator[Case]:
    """Character GPTs as torch draws them."""
    held = batches(path, 4, 999, "held", 4 * grid.SIZE, grid.LENGTH)
    shape = (grid.SIZE, grid.LENGTH)
    optimizers = dict(list(grid.OPTIMIZERS.items())[1:])
    for norm, blocks in (("post", 12), ("pre", 6), ("none", 6), ("post", 6)):
        torch.manual_seed(seed)
        model = GPT(text(path)[1], blocks, norm, grid.WIDTH)

        def end(changed: Any, make: Any) -> Row:
            optimizer = make(changed.parameters())
            for x, y in batches(path, grid.STEPS, seed, "train", *shape):
                loss = grid.cross_entropy(changed(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                losses = [float(grid.cross_entropy(changed(x), y)) for x, y in held]
            return {"loss": round(sum(losses) / len(losses), 4)}

        network = f"GPT, {blocks} blocks, {norm}"
        names = {"suite": "text", "network": network, "start": "torch's", "seed": seed}
        data = batches(path, 64, 1000 + seed, "train", *shape)
        yield Case(names, model, data, grid.cross_entropy, optimizers, end)


def rows_of(case: Case) -> Iterator[Row]:
    """One line an optimizer."""
    model, options = case.model, {"progress": False}
    found: dict[str, Any] = {}
    methods = {
        "layers": ni.LSUV(redraw=False),
        "LSUV": ni.LSUV(),
        "small": SmallBranches(),
        "zero": SmallBranches(factor=NEAR_ZERO),
    }
    for arm, method in methods.items():
        torch.manual_seed(case.names["seed"])
        found[arm] = ni.optimize(model, case.batches, case.loss_fn, method, **options)
    sides = {
        arm: [side.agreement if side else math.nan for side in (result.before, result.after)]
        for arm, result in found.items()
    }
    arms = {"own": model} | {
        arm: result.apply_(copy.deepcopy(model))
        for arm, result in found.items()
        if result.drawn or any(scale != 1 for scale in result.scales.values())
    }
    for name, make in case.optimizers.items():
        row: Row = {**case.names, "optimizer": name}
        row["agreement"] = {arm: [round(a, 4) for a in pair] for arm, pair in sides.items()}
        result = ni.nio_(
            copy.deepcopy(model),
            case.batches,
            case.loss_fn,
            optimizer=make,
            verify=False,
            progress=False,
        )
        changed = dict(arms)
        if set(result.scales.values()) != {1.0}:
            changed["whole"] = scaled(model, result.scales)
            changed["half"] = scaled(model, result.scales, 0.5)
        for arm, started in changed.items():
            row[arm] = _outcome(started, make, case)
        yield row


def _outcome(model: nn.Module, make: Any, case: Case) -> Row:
    """Validation losses after short trainings, and how the long one ends."""
    problem = Problem(model, case.loss_fn, None)
    validation, training = split_batches(case.batches[:16], 2)
    found: Row = {}
    for key, rate, parts in (("once", 1.0, (6, 6)), ("twice", 2.0, (12, 6))):
        rollout = Rollout(problem, problem.original, faster(make, rate))
        feed = itertools.cycle(training)
        for part in parts:
            rollout.train(feed, part)
            found.setdefault(key, []).append(_finite(rollout.outcome(validation).losses))
        found.setdefault("learned", {})[key] = _finite(rollout.outcome(validation).learned)
        found.setdefault("first", round(rollout.losses[0], 5))
    return {**found, **case.end(copy.deepcopy(model), make)}


def _finite(values: list[float]) -> list[float]:
    return [round(x, 5) if math.isfinite(x) else NOT_FINITE for x in values]


# -- decisions -------------------------------------------------------------------------------------


def decided(row: Row, arms: tuple[str, ...], asked: tuple[str, ...], apart: bool = False) -> str:
    """What `nio_` applies if it tries these arms.

    Args:
        row: A record.
        arms: What is tried.
        asked: Those that have to raise the agreement.
        apart: Layers are not scaled where there are branches.
    """
    tried = [a for a in arms if a in row and (a not in asked or _risen(row["agreement"][a]))]
    if apart and SMALL in row and LAYERS in tried:
        tried.remove(LAYERS)
    if tried == ["whole"]:
        tried.append("half")
    if not tried:
        return "own"
    best = min(tried, key=lambda arm: mean(row[arm]["once"][1]))
    own, losses = row["own"]["once"][1], row[best]["once"][1]
    if mean(own) >= NOT_FINITE or mean(own) > 2 * abs(row["own"]["first"]):
        return best if max(losses) < NOT_FINITE else "own"
    errors = -2.0 if "whole" in row else 2.0
    faster = row[best]["twice"][1]
    confirmed = ahead(own, losses, errors) and ahead(own, faster, min(errors, 0.0))
    return best if confirmed else "own"


def _risen(pair: list[float]) -> bool:
    return pair[1] > pair[0]


def decided_by_learning(row: Row, branches: tuple[str, ...] = ("small", "zero")) -> str:
    """What `nio_` applies: see :mod:`neuroinit.run.verify`."""
    diagnosed = "whole" in row
    tried = ["whole"] if diagnosed else []
    if "small" in row:
        tried += branches[:1] if diagnosed else branches
    elif "layers" in row:
        tried.append("layers")
    if tried == ["whole"]:
        tried.append("half")
    tried = [a for a in tried if _learns(row, a)]
    if not tried:
        return "own"
    broken = not _learns(row, "own")
    best = min(tried, key=lambda a: mean(row[a]["once"][1] if broken else _scores(row, a, "once")))
    if _diverges(row, "own", "once"):
        return best
    if broken:
        return "own" if _diverges(row, best, "twice") else best
    own = _scores(row, "own", "once")
    sure = _lower(own, _scores(row, best, "once"), 0.0 if diagnosed else 2.0)
    return best if sure and _lower(own, _scores(row, best, "twice"), 0.0) else "own"


def _learns(row: Row, arm: str) -> bool:
    return not _diverges(row, arm, "once") and learned_share(row, arm) > NOTHING


def learned_share(row: Row, arm: str) -> float:
    """What was learned in 12 steps, as a share of the loss; 0 for nothing."""
    losses, learned = row[arm]["once"][1], row[arm]["learned"]["once"]
    return math.sqrt(mean([x * x for x in learned])) / abs(mean(losses))


def _scores(row: Row, arm: str, key: str) -> list[float]:
    pairs = zip(row[arm][key][1], row[arm]["learned"][key], strict=True)
    return [loss - own if loss < NOT_FINITE else NOT_FINITE for loss, own in pairs]


def _lower(own: list[float], scores: list[float], errors: float) -> bool:
    gain, noise = lead(own, scores)
    return max(scores) < NOT_FINITE and (gain > errors * noise if errors else gain >= 0)


def _diverges(row: Row, arm: str, key: str) -> bool:
    losses = row[arm][key][1]
    return max(losses) >= NOT_FINITE or mean(losses) > 2 * abs(row["own"]["first"])


LAYERS, SMALL, ZERO = "layers", "small", "zero"
SCALED = ("own", "whole", "half", LAYERS, SMALL, ZERO)  # without fresh values
WAYS: dict[str, Callable[[Row], str]] = {
    "as it is": lambda row: "own",
    "LSUV, always": lambda row: "LSUV" if "LSUV" in row else "own",
    "by the loss: the result, or half of it": lambda row: decided(row, ("whole",), ()),
    "one factor a layer, too, if the agreement rises": lambda row: decided(
        row, ("whole", LAYERS), (LAYERS,)
    ),
    "small branches, or layers where there are none, if the agreement rises": lambda row: decided(
        row, ("whole", LAYERS, SMALL), (LAYERS, SMALL), apart=True
    ),
    "by the loss, without asking the agreement": lambda row: decided(
        row, ("whole", LAYERS, SMALL), (), apart=True
    ),
    "by what is learned, small branches": lambda row: decided_by_learning(row, (SMALL,)),
    "by what is learned, branches times 0.05": lambda row: decided_by_learning(row, (ZERO,)),
    "**by what is learned, both**": decided_by_learning,
    "the best of all scales, known in advance": lambda row: next(
        (a for a in SCALED if a in row and _trains(row, a)), "own"
    ),
}
SHARES = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, math.inf)


def shares() -> str:
    """Markdown: what becomes of starts by how much they have learned in 12 steps."""
    lines = [
        "| learned in 12 steps, as a share of the loss | cells | train as they are "
        "| train from other scales |",
        "|---|---|---|---|",
    ]
    rows = [row for row in read() if not _diverges(row, "own", "once")]
    for low, high in itertools.pairwise(SHARES):
        own = [row for row in rows if low <= learned_share(row, "own") < high]
        trained = sum(_trains(row, "own") for row in own)
        could = sum(any(_trains(row, a) for a in SCALED if a in row) for row in own)
        name = f"below {high:g}" if not low else f"{low:g} to {high:g}"
        name = f"above {low:g}" if high == math.inf else name
        lines.append(f"| {name} | {len(own)} | {trained} | {could} |")
    return "\n".join(lines)


def table() -> str:
    """Markdown: a line a way to decide."""
    rows = read()
    parts = [[r for r in rows if r["suite"] == suite] for suite in GOOD]
    lines = [
        "| | "
        + " | ".join(f"{suite}, {len(own)} cells" for suite, own in zip(GOOD, parts, strict=True))
        + " | made worse |",
        "|---" * (len(GOOD) + 2) + "|",
    ]
    for name, choose in WAYS.items():
        counts = [sum(_trains(r, choose(r)) for r in own) for own in parts]
        worse = sum(_trains(r, "own") and not _trains(r, choose(r)) for r in rows)
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {worse} |")
    return "\n".join(lines)


def _trains(row: Row, arm: str) -> bool:
    """A GPT below 3.0 has learned about its input; the entropy of single letters is 3.35."""
    found, good = row[arm], GOOD[row["suite"]]
    return bool(found["loss"] < good if "loss" in found else found["accuracy"] >= good)


def read() -> list[Row]:
    """All records so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def main() -> None:
    """Run what is missing, or print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    command, *rest = sys.argv[1:]
    if command == "table":
        print(table(), shares(), sep="\n\n")
        return
    suite, *source = rest
    keys = ("suite", "network", "start", "seed")
    done = {tuple(r[k] for k in keys) for r in read()} if RESULTS.exists() else set()
    for seed in SEEDS:
        where = "".join(source)
        found = text_cases(where, seed) if suite == "text" else image_cases(suite, where, seed)
        for case in found:
            if tuple(case.names[k] for k in keys) not in done:
                lines = [json.dumps(row) + "\n" for row in rows_of(case)]
                with RESULTS.open("a") as file:
                    file.writelines(lines)


if __name__ == "__main__":
    main()
