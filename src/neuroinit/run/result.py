"""What an optimization found: scales, history, before and after."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neuroinit.common.errors import listed
from neuroinit.common.files import write_text
from neuroinit.common.interrupts import deferred
from neuroinit.common.tensors import at_least_float32
from neuroinit.distributed.fsdp import check_not_fsdp1, reshard
from neuroinit.gradients.statistics import GradientStats, LayerStats, Record
from neuroinit.model.fresh_values import Draw
from neuroinit.model.selection import unwrap

FORMAT = "neuroinit-result-2"


@dataclass(frozen=True)
class StepRecord(Record):
    """One step: what its batch looked like before it; ``nan`` for what a method does not look at.

    ``value`` is what the step descended.
    """

    step: int
    loss: float
    cosine: float
    norm: float
    norm_max: float
    norm_min: float
    constrained: bool
    seconds: float
    value: float = float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The outcome of :func:`neuroinit.optimize`.

    Args:
        scales: Parameter name -> scale; one entry for tied tensors.
        history: One record a step.
        before: Statistics of the start on a batch that no step has seen (see ``held_out``).
        after: The same batch at the scaled parameters; ``None`` for a run that did not finish.
        settings: The method's fields, automatic ones resolved.
        engine: Which engine ran.
        stopped: Why the run ended.
        held_out: Whether ``before`` and ``after`` are on a batch that no step has seen; with no
            batch to spare they are on one that was used.
        blocked: Parameters without gradient because of all-zero tensors.
        drawn: Name -> how a tensor gets fresh values, before it is scaled.
        versions: Of neuroinit and torch.
    """

    scales: dict[str, float]
    history: list[StepRecord]
    before: GradientStats | None
    after: GradientStats | None
    settings: dict[str, Any]
    engine: str
    stopped: str
    held_out: bool = True
    blocked: list[str] = field(default_factory=list)
    drawn: dict[str, Draw] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def apply_(self, model: nn.Module) -> nn.Module:
        """Scale the parameters of a model in place; optimizers made before stay valid.

        The model should have the start that the result was made from: its values are multiplied,
        so that applying a result twice scales twice.

        Args:
            model: A model with the same parameter names; wrappers are looked through.

        Returns:
            The model.

        Raises:
            ValueError: If a scaled parameter is missing; nothing is changed then.
        """
        check_not_fsdp1(model)
        reshard(model)
        parameters = dict(unwrap(model).named_parameters())
        missing = [n for n in (*self.scales, *self.drawn) if n not in parameters]
        if missing:
            raise ValueError(
                f"The model has no parameter {listed(missing)}. "
                "Apply a result to the model it was made for, or to a copy."
            )
        changed = {n: parameters[n].detach().clone() for n in {**self.scales, **self.drawn}}
        with deferred(), torch.no_grad():  # all or nothing
            try:
                for name in changed:
                    parameters[name].copy_(self._scaled(name, changed[name]))
            except BaseException:
                for name, original in changed.items():
                    parameters[name].copy_(original)
                raise
        return model

    def _scaled(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        wide = at_least_float32(tensor)
        if name in self.drawn:
            wide = self.drawn[name].like(wide)
        return wide * self.scales.get(name, 1.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as JSON: to a temporary file beside it first, then renamed."""
        write_text(path, json.dumps(_to_json(self), indent=1, allow_nan=False))

    def report(self, path: str | os.PathLike[str], title: str = "Initialization report") -> None:
        """Write a page about the result for a browser: one file, which needs no network.

        Needs ``pip install "neuroinit[report]"``.

        Args:
            path: Where, for example ``"report.html"``.
            title: Its heading.
        """
        from neuroinit.report import page

        data = {**_to_json(self), "before": _for_page(self.before), "after": _for_page(self.after)}
        write_text(path, page(data, title))

    def __repr__(self) -> str:
        lines = [self._headline()]
        if self.before and self.after:
            held = "held-out batch" if self.held_out else "a batch that was used"
            lines.append(f"  {held:<22}{'before':>10}  {'after':>10}")
            for label, name in _ROWS:
                old, new = getattr(self.before, name), getattr(self.after, name)
                lines.append(f"  {label:<22}{old:>10.4g}  {new:>10.4g}")
        if any(scale != 1 for scale in self.scales.values()):
            low = min(self.scales, key=self.scales.__getitem__)
            high = max(self.scales, key=self.scales.__getitem__)
            lines.append(
                f"  scales from {self.scales[low]:.3g} ({low}) to {self.scales[high]:.3g} ({high})"
            )
        if "gamma" in self.settings and self.history:
            active = sum(record.constrained for record in self.history)
            lines.append(
                f"  bound gamma = {self.settings['gamma']:.3g} exceeded in {active} of "
                f"{len(self.history)} steps"
            )
        if self.blocked:
            lines.append(f"  no gradient because of all-zero tensors: {listed(self.blocked)}")
        return "\n".join(lines)

    def _headline(self) -> str:
        method = self.settings.get("method", "?")
        parts = [f"{len(self.drawn)} tensors drawn"] if self.drawn else []
        if self.history:
            seconds = sum(record.seconds for record in self.history)
            engine = [] if self.engine == "none" else [f"engine {self.engine}"]
            steps = f"{len(self.history)} steps in {seconds:.1f} s ({self.stopped})"
            parts = [steps, *engine, *parts, f"{len(self.scales)} tensors scaled"]
        return f"{method}: {', '.join(parts) or 'nothing changed'}"


_ROWS = (
    ("loss", "loss"),
    ("GradCosine", "cosine"),
    ("gradient norm", "norm"),
    ("largest / smallest norm", "norm_ratio"),
)


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a result that :meth:`Result.save` wrote.

    Raises:
        ValueError: If the file is no such result.
    """
    try:
        data = json.loads(Path(path).read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"`{path}` is no JSON file: {error}.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(
            f"`{path}` is no result of this version of neuroinit: expected `format = {FORMAT!r}`."
        )
    try:
        return _from_json(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"`{path}` is no complete result: {error!r}.") from error


def _from_json(data: dict[str, Any]) -> Result:
    return Result(
        scales=data["scales"],
        history=[StepRecord(**readable(record)) for record in data["history"]],
        before=_stats_from_json(data["before"]),
        after=_stats_from_json(data["after"]),
        settings=data["settings"],
        engine=data["engine"],
        stopped=data["stopped"],
        held_out=data["held_out"],
        blocked=data["blocked"],
        drawn={n: Draw(**draw) for n, draw in data["drawn"].items()},
        versions=data["versions"],
    )


def _to_json(result: Result) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **vars(result),
        "history": [writable(record) for record in result.history],
        "drawn": {name: asdict(draw) for name, draw in result.drawn.items()},
        "before": _stats_to_json(result.before),
        "after": _stats_to_json(result.after),
    }


def _stats_to_json(stats: GradientStats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    layers = [writable(layer) for layer in stats.layers]
    return {
        "loss": stats.loss,
        "norms": stats.norms.tolist(),
        "cosines": stats.cosines.tolist(),
        "layers": layers,
        "batch_stats": stats.batch_stats,
    }


def _for_page(stats: GradientStats | None) -> dict[str, Any] | None:
    """The statistics as plain values, with the numbers that are derived from them."""
    plain = _stats_to_json(stats)
    derived = ("cosine", "norm", "norm_max", "norm_min", "norm_ratio", "variance")
    return plain and {**plain, **{name: getattr(stats, name) for name in derived}}


def _stats_from_json(data: dict[str, Any] | None) -> GradientStats | None:
    if data is None:
        return None
    layers = [LayerStats(**readable(layer)) for layer in data["layers"]]
    return GradientStats(
        loss=data["loss"],
        norms=torch.tensor(data["norms"], dtype=torch.float64, device="cpu"),
        cosines=torch.tensor(data["cosines"], dtype=torch.float64, device="cpu"),
        layers=layers,
        batch_stats=data["batch_stats"],
    )


def writable(record: Record) -> dict[str, Any]:
    """JSON has no nan and no infinity: write them as strings."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in dict(record).items()
    }


def readable(data: dict[str, Any]) -> dict[str, Any]:
    """What :func:`writable` made of a record."""
    return {k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in data.items()}
