"""Reads results from files; raises for files that are damaged or have values of a wrong type."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch

from neuroinit.common.sealed_json import JSON, of_kind, read_record, unsealed
from neuroinit.gradients.statistics.gradient_stats import GradientStats, LayerStats
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.run.results.about import About
from neuroinit.run.results.result import FORMAT, Result, StepRecord

T = TypeVar("T")


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a result that :meth:`Result.save` wrote.

    Raises:
        ValueError: If the file is not a saved result, or is damaged.
        OSError: If it cannot be read.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import neuroinit as ni
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
        >>> import pathlib, tempfile
        >>> result = ni.optimize(model, batches, method=ni.GradInit(steps=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(pathlib.Path(folder, "init.json"))
        ...     found = load_result(pathlib.Path(folder, "init.json"))
        >>> found.scales == result.scales
        True
    """
    data = unsealed(Path(path).read_bytes(), path, "result", FORMAT, optional=True)
    try:
        return _from_json(data)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"`{path}` is not a complete result, or is damaged: {error}.") from error


def _from_json(data: Mapping[str, JSON]) -> Result:
    def entry(key: str, kind: type[T]) -> T:
        return of_kind(kind, data[key], f"`{key}`")

    about = data.get("about")
    return Result(
        scales=_scales(entry("scales", dict)),
        history=[_step(record) for record in entry("history", list)],
        before=_stats(data["before"]),
        after=_stats(data["after"]),
        settings=entry("settings", dict),
        engine=entry("engine", str),
        stopped=entry("stopped", str),
        held_out=entry("held_out", bool),
        blocked=entry("blocked", list),
        drawn={n: Draw(**of_kind(dict, draw)) for n, draw in entry("drawn", dict).items()},
        versions=entry("versions", dict),
        digests=_digests(entry("digests", dict)),
        verified=entry("verified", str),
        about=About(**of_kind(dict, about)) if about else None,
    )


def _scales(data: dict[str, float]) -> dict[str, float]:
    for name, scale in data.items():
        if not _is_number(scale) or not math.isfinite(scale):
            raise ValueError(f"the scale of `{name}` should be a finite number, found {scale!r}")
    return data


def _digests(data: dict[str, list[int]]) -> dict[str, list[int]]:
    for name, pair in data.items():
        if not isinstance(pair, list) or [type(n) for n in pair] != [int, int]:
            raise TypeError(f"the digests of `{name}` should be two integers, found {pair!r:.40}")
    return data


def _step(data: JSON) -> StepRecord:
    record = read_record(StepRecord, data)
    for name, value in dict(record).items():
        if not _is_number(value) and not (name == "constrained" and isinstance(value, bool)):
            raise TypeError(f"`{name}` of a step should be a number, found {value!r:.40}")
    return record


def _stats(given: JSON) -> GradientStats | None:
    if given is None:
        return None
    data = of_kind(dict, given)
    norms = torch.tensor(data["norms"], dtype=torch.float64, device="cpu")
    cosines = torch.tensor(data["cosines"], dtype=torch.float64, device="cpu")
    if cosines.shape != (*norms.shape, *norms.shape) or not _is_number(data["loss"]):
        raise ValueError(f"statistics of {len(norms)} sub-batches have other shapes or types")
    return GradientStats(
        loss=data["loss"],
        norms=norms,
        cosines=cosines,
        layers=[read_record(LayerStats, layer) for layer in data["layers"]],
        batch_stats=data["batch_stats"],
        agreement=float(data.get("agreement", "nan")),  # not in files of older versions
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
