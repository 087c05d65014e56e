"""A simpler default: measure, propose one factor, refine by ascent, and verify by training.

Pure functions on plain torch modules; ``improve_`` puts them together.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.agreement import (
    Batch,
    Values,
    agreement,
    cross_entropy,
    derivative,
    entropy,
    flat,
    gradients,
    losses_of,
    shifted,
    twice_differentiable,
)

MakeOptimizer = Callable[[Any], Optimizer]


@dataclass(frozen=True)
class Settings:
    """Every constant of the default.

    Args:
        sub_batches: ``D``; unrelated gradients have an agreement of ``1/D``, the limit of dead.
        explodes: A start explodes if its loss is above this multiple of the best constant's.
        noise: A changed start may cost this multiple of the best constant's loss.
        step: Of the search, in the logarithm of the common factor.
        near: The smallest change that has this share of the best agreement is taken.
        ascent: Steps of ascent; 0 for none.
        ascent_step: Longest change of a log-scale in an ascent step.
        rollout: Training steps of a rollout.
        sure: Standard errors by which a result has to beat the start.
        haste: What is applied must also hold at so many times the learning rate, unless the start
            diverges.
        hasty_steps: Training steps of such a rollout.
        watched: Training steps of a start for which nothing is proposed.
    """

    sub_batches: int = 8
    shifts: int = 4
    explodes: float = 2.0
    noise: float = 1.2
    step: float = math.log(2) / 2
    furthest: int = 14
    near: float = 0.9
    ascent: int = 0
    ascent_step: float = 0.1
    rollout: int = 12
    sure: float = 2.0
    haste: float = 2.0
    hasty_steps: int = 18
    watched: int = 24


@dataclass(frozen=True)
class Measured:
    """A start seen on some samples."""

    loss: float
    agreement: float

    @property
    def finite(self) -> bool:
        """Whether both are."""
        return math.isfinite(self.loss) and math.isfinite(self.agreement)


def joined(batches: list[Batch]) -> Batch:
    """One batch of several."""
    return torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])


def is_weight(name: str, value: Tensor) -> bool:
    """Matrices and kernels; biases and gains stay as they were set."""
    return value.dim() >= 2


def times(values: Values, log_scales: dict[str, float]) -> Values:
    """The values at these log-scales."""
    return {n: v * math.exp(log_scales[n]) if n in log_scales else v for n, v in values.items()}


def measure(model: nn.Module, values: Values, batch: Batch, s: Settings) -> Measured:
    """Loss and agreement, from first-order gradients alone."""
    leaves = {n: v.detach().requires_grad_() for n, v in values.items()}
    with twice_differentiable():
        with torch.no_grad():
            loss = float(
                cross_entropy(torch.func.functional_call(model, leaves, (batch[0],)), batch[1])
            )
        if not math.isfinite(loss):
            return Measured(math.inf, math.nan)
        losses = losses_of("contrast", model, leaves, batch, s.sub_batches, s.shifts)
        rows = [flat(r).double() for r in gradients(losses, list(leaves.values()))]
    return Measured(loss, float(agreement(rows)))


def state_of(start: Measured, base: float, s: Settings) -> str:
    """``explodes``, ``dead`` or ``alive``."""
    if not start.finite or start.loss > s.explodes * base:
        return "explodes"
    return "dead" if start.agreement < 1 / s.sub_batches else "alive"


def common_factor(look: Callable[[float], Measured], base: float, s: Settings) -> tuple[str, float]:
    """What is wrong with a start, and the logarithm of the factor that mends it.

    The agreement is searched along one line: all weights grow if the start is dead, and shrink if
    it explodes, as long as the loss allows. Of the points that have nearly the best agreement, the
    nearest to the start is taken.
    """
    start = look(0.0)
    state = state_of(start, base, s)
    if state == "alive":
        return state, 0.0
    sign = 1.0 if state == "dead" else -1.0
    limit = s.noise * base if state == "explodes" else max(s.noise * base, start.loss)
    seen: dict[float, float] = {0.0: start.agreement} if state == "dead" else {}

    def see(at: float) -> bool:
        found = look(at)
        if found.finite and found.loss <= limit:
            seen[at] = found.agreement
        return at in seen

    for k in range(1, s.furthest + 1):
        at = sign * k * s.step
        allowed = see(at)
        if not allowed and state == "dead":
            break
        best = max(seen.values(), default=0.0)
        if allowed and best > 1 / s.sub_batches and seen[at] < s.near * best:
            break
    if not seen:
        return state, sign * s.furthest * s.step
    for part in (0.5, 0.25):  # a deep network changes much between two points of the search
        best_at = max(seen, key=lambda at: seen[at])
        for at in (best_at - part * s.step, best_at + part * s.step):
            if sign * at > 0:
                see(at)
    best = max(seen.values())
    return state, min((a for a, v in seen.items() if v >= s.near * best), key=abs)


def ascend(
    model: nn.Module,
    values: Values,
    names: list[str],
    groups: list[Batch],
    held: Batch,
    base: float,
    s: Settings,
) -> dict[str, float]:
    """Log-scales that raise the agreement, as far as the held-out batch confirms."""
    log_scales = dict.fromkeys(names, 0.0)
    first = measure(model, values, held, s)
    best, kept = first.agreement, dict(log_scales)
    limit = max(s.noise * base, first.loss)
    for k in range(s.ascent):
        moved = times(values, log_scales)
        _, u = derivative(
            model,
            moved,
            names,
            groups[k % len(groups)],
            agreement,
            "contrast",
            s.sub_batches,
            s.shifts,
        )
        length = s.ascent_step * (1 - k / s.ascent)
        step = length * u / u.abs().max().clamp_min(1e-12)
        log_scales = {n: log_scales[n] + float(d) for n, d in zip(names, step, strict=True)}
        if k % 4 == 3 or k == s.ascent - 1:
            found = measure(model, times(values, log_scales), held, s)
            if not found.finite or found.loss > limit or found.agreement < best:
                break
            best, kept = found.agreement, dict(log_scales)
    return kept


@dataclass
class Rollout:
    """What became of a short training."""

    losses: list[float]
    judged: list[float]
    permuted: list[float]

    def learns(self, sure: float) -> bool:
        """Whether the held-out loss is below that with permuted targets: the input is used."""
        gains = [b - a for a, b in zip(self.judged, self.permuted, strict=True)]
        if not gains:
            return False
        return statistics.mean(gains) > sure * statistics.stdev(gains) / math.sqrt(len(gains))

    @property
    def mean(self) -> float:
        """The mean held-out loss."""
        return statistics.mean(self.judged) if self.judged else math.inf


def rollout(
    model: nn.Module,
    values: Values,
    make: MakeOptimizer,
    batches: list[Batch],
    judges: list[Batch],
    stop_above: float,
) -> Rollout:
    """Train a copy; it is stopped where its loss is not finite or hopeless."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for n, p in copied.named_parameters():
            p.copy_(values[n])
    optimizer, losses = make(copied.parameters()), []
    for x, y in batches:
        loss = cross_entropy(copied(x), y)
        losses.append(float(loss.detach()))
        if not losses[-1] <= stop_above:
            return Rollout(losses, [], [])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        outputs = [copied(x) for x, _ in judges]
        judged = [float(cross_entropy(z, y)) for z, (_, y) in zip(outputs, judges, strict=True)]
        permuted = [
            float(cross_entropy(z, shifted(y, len(y) // 2)))
            for z, (_, y) in zip(outputs, judges, strict=True)
        ]
    if not all(map(math.isfinite, judged)):
        return Rollout(losses, [], [])
    return Rollout(losses, judged, permuted)


def beats(theirs: Rollout, start: Rollout, sure: float) -> bool:
    """Whether a rollout ends lower than the start's, beyond the noise between judging batches."""
    if not theirs.judged or not start.judged:
        return bool(theirs.judged)
    gains = [math.log(a / b) for a, b in zip(start.judged, theirs.judged, strict=True)]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return statistics.mean(gains) > sure * error


def improve_(
    model: nn.Module, data: list[Batch], make: MakeOptimizer | None, s: Settings | None = None
) -> dict[str, Any]:
    """Change a model in place, or leave it alone; tells which and why."""
    s = s or Settings()
    values = {n: p.detach().clone() for n, p in model.named_parameters()}
    names = [n for n, v in values.items() if is_weight(n, v)]
    groups = [joined(data[4 * k : 4 * k + 4]) for k in range(3)]
    judges, training = data[12:16], data[16:]
    base = entropy(groups[0][1])
    made = copy.deepcopy(model)

    def look(at: float, group: int = 0) -> Measured:
        return measure(made, times(values, dict.fromkeys(names, at)), groups[group], s)

    state, factor = common_factor(look, base, s)
    log_scales = dict.fromkeys(names, factor)
    before, after = look(0.0, 2), look(factor, 2)
    told: dict[str, Any] = {"state": state, "factor": round(math.exp(factor), 3)}
    if state == "dead" and not after.agreement > before.agreement:
        log_scales, factor = dict.fromkeys(names, 0.0), 0.0
    if s.ascent and after.finite:
        more = ascend(made, times(values, log_scales), names, groups[:2], groups[2], base, s)
        log_scales = {n: log_scales[n] + more[n] for n in names}
    chosen = log_scales
    if make is not None:
        chosen, verdict = verified(model, values, log_scales, make, training, judges, base, s)
        told.update(verdict)
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(times(values, chosen)[n])
    told["before"] = [round(before.loss, 3), round(before.agreement, 4)]
    told["after"] = [round(after.loss, 3), round(after.agreement, 4)]
    return told


def verified(
    model: nn.Module,
    values: Values,
    log_scales: dict[str, float],
    make: MakeOptimizer,
    training: list[Batch],
    judges: list[Batch],
    base: float,
    s: Settings,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Apply whole, in part, or not at all, by rollouts of at most 60 steps together.

    A start that diverges is shrunk until it learns. Otherwise the result has to beat the start, and
    to do no worse at a higher learning rate; or at least to beat the start there, if the start
    learns nothing.
    """

    def hasty(parameters: Any) -> Optimizer:
        made = make(parameters)
        for group in made.param_groups:
            group["lr"] *= s.haste
        return made

    def run(scales: dict[str, float], how: MakeOptimizer = make, steps: int = s.rollout) -> Rollout:
        some = training[:steps]
        return rollout(model, times(values, scales), how, some, judges, 1e4 * base)

    proposed = any(abs(v) > 1e-6 for v in log_scales.values())
    start = run({}, steps=s.rollout if proposed else s.watched)
    lost = not start.mean <= s.explodes * max(base, start.losses[0])
    learns = start.learns(s.sure)
    if lost or not (proposed or learns):  # smaller and smaller, until it learns
        smaller = {k: {n: v - k * math.log(2) for n, v in log_scales.items()} for k in range(3)}
        options = {"whole": smaller[0], "shrunk": smaller[1], "shrunk twice": smaller[2]}
        if not proposed:
            del options["whole"]
    elif proposed:
        options = {"whole": log_scales, "half": {n: v / 2 for n, v in log_scales.items()}}
    else:
        options = {}
    ends, best = [start.mean], math.inf
    for name, option in options.items():
        if lost or best == math.inf:
            found = run(option)
            ends.append(found.mean)
            if not beats(found, start, s.sure) or (lost and not found.learns(s.sure)):
                continue
            best = found.mean
        if not lost:  # worse at a higher rate: near divergence
            hurried = run(option, hasty, s.hasty_steps)
            ends.append(hurried.mean)
            if not (hurried.mean <= best if learns else beats(hurried, start, s.sure)):
                continue
        return option, {"applied": name, "rollouts": [round(e, 3) for e in ends]}
    return {}, {"applied": "none", "rollouts": [round(e, 3) for e in ends]}
