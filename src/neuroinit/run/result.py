"""The result of an optimization: scales, history, statistics before and after."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neuroinit.common.checks import check_choice
from neuroinit.common.errors import listed, warn
from neuroinit.common.files import write_text
from neuroinit.common.signals import deferred
from neuroinit.common.tensors import at_least_float32, fingerprint
from neuroinit.distributed.dtensor import is_sharded
from neuroinit.distributed.fsdp import check_not_fsdp1, reshard
from neuroinit.gradients.statistics import GradientStats, LayerStats, Record
from neuroinit.model.fresh_values import Draw
from neuroinit.model.selection import unwrap
from neuroinit.run.about import About
from neuroinit.run.frames import records_frame
from neuroinit.run.result_text import result_text
from neuroinit.run.tensor_table import TensorRow, tensor_rows

FORMAT = "neuroinit-result-3"


@dataclass(frozen=True)
class StepRecord(Record):
    """Statistics of the batch before a step; ``nan`` for what a method does not compute.

    ``value`` is the objective that the step minimizes.
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
        verified: What short trainings decided, if :func:`nio_` made them.
        digests: Name -> hashes of a scaled tensor's values before and after the result is applied.
        about: The model, the date and the size of a batch; ``None`` in files of older versions.
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
    digests: dict[str, list[int]] = field(default_factory=dict)
    verified: str = ""
    about: About | None = None

    def apply_(self, model: nn.Module) -> nn.Module:
        """Scale the parameters of a model in place; optimizers made before stay valid.

        The values of the model are multiplied, so it should have the values that the result was
        made from: another model with the same seed, or a copy. A warning says if it has not.

        Args:
            model: A model with the same parameter names; wrappers are looked through.

        Returns:
            The model.

        Raises:
            ValueError: If a scaled parameter is missing, or the result was applied before. Nothing
                is changed then.
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
        self._check_values(parameters)
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

    def _check_values(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Raise if the result was applied to these parameters; warn if they have other values."""
        compared = [n for n in self.digests if not is_sharded(parameters[n])]
        found = {n: fingerprint(parameters[n]) for n in compared}
        scaled = [n for n in compared if self.digests[n][0] != self.digests[n][1]]
        if scaled and all(found[n] == self.digests[n][1] for n in scaled):
            raise ValueError(
                "The result was applied to this model before; its scales would be applied twice. "
                "Apply a result once, to the values that it was made from."
            )
        other = [n for n in compared if found[n] != self.digests[n][0]]
        if other:
            warn(
                f"The model has other values than the one that the result was made from, in "
                f"{listed(other)}. The scales were found for those values."
            )

    def _scaled(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        wide = at_least_float32(tensor)
        if name in self.drawn:
            wide = self.drawn[name].like(wide)
        return wide * self.scales.get(name, 1.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as JSON: to a temporary file beside it first, then renamed."""
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False))

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values, exactly as :meth:`save` writes them.

        Returns:
            Dicts, lists, strings, numbers and ``None``, ready for ``json.dumps``. Numbers that are
            not finite are the strings ``"nan"``, ``"inf"`` and ``"-inf"``.
        """
        return _to_json(self)

    def frame(self, rows: str = "tensors") -> Any:
        """A table of the result as a pandas data frame; needs ``pip install "neuroinit[pandas]"``.

        Args:
            rows: ``"tensors"`` for one row a parameter tensor, indexed by its name: layer group,
                kind (weight or bias), scale, norm and cosine before and after. ``"history"`` for
                one row a step, indexed by the step.

        Returns:
            A ``pandas.DataFrame``.
        """
        check_choice("rows", rows, ("tensors", "history"))
        if rows == "tensors":
            return records_frame(tensor_rows(self), TensorRow, "name")
        return records_frame(self.history, StepRecord, "step")

    def report(self, path: str | os.PathLike[str], title: str = "Initialization report") -> None:
        """Write a page about the result for a browser: one file, which needs no network.

        Needs ``pip install "neuroinit[report]"``.

        Args:
            path: Where, for example ``"report.html"``.
            title: Its heading.
        """
        from neuroinit.report import result_page

        write_text(path, result_page(self, title))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from neuroinit.report import result_note

        return result_note(self)

    def __repr__(self) -> str:
        return result_text(self)


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
        digests=data["digests"],
        verified=data["verified"],
        about=About(**data["about"]) if data.get("about") else None,
    )


def _to_json(result: Result) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **vars(result),
        "history": [writable(record) for record in result.history],
        "drawn": {name: asdict(draw) for name, draw in result.drawn.items()},
        "before": _stats_to_json(result.before),
        "after": _stats_to_json(result.after),
        "about": result.about and dict(result.about),
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
