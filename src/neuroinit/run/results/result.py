"""The result of an optimization: scales, history, statistics before and after."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from neuroinit.common.checks import check_choice, check_instance
from neuroinit.common.errors import listed, warn
from neuroinit.common.files import write_text
from neuroinit.common.process.signals import deferred
from neuroinit.common.sealed_json import JSON, plain, sealed
from neuroinit.common.tensors import at_least_float32, fingerprint
from neuroinit.distributed.dtensor import whole
from neuroinit.distributed.fsdp import check_not_fsdp1, reshard
from neuroinit.gradients.statistics.gradient_stats import GradientStats, Record
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import unwrap
from neuroinit.run.results.about import About
from neuroinit.run.results.frames import records_frame
from neuroinit.run.results.reported import Reported
from neuroinit.run.results.tensor_table import TensorRow, tensor_rows
from neuroinit.run.results.text import result_text

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = "neuroinit-result-3"


@dataclass(frozen=True)
class StepRecord(Record):
    """Statistics of the batch before a step; ``nan`` for what a method does not compute.

    ``value`` is the objective that the step minimizes.

    Example:
        >>> record = StepRecord(0, 2.3, 0.1, 1.5, 1.6, 1.4, False, 0.01)
        >>> record.norm, record["norm"], dict(record)["step"]
        (1.5, 1.5, 0)
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
class Result(Reported):
    """The outcome of :func:`neuroinit.optimize`.

    Args:
        scales: Parameter name -> scale; one entry for tied tensors.
        history: One record per step.
        before: Gradient statistics of the start, on a batch that no step used (see ``held_out``).
        after: The same with the scaled parameters; ``None`` for a run that did not finish.
        settings: The method's fields; automatic settings have their values.
        engine: The name of the engine that ran.
        stopped: Why the run ended.
        held_out: Whether no step used the batch of ``before`` and ``after``. If there are not
            enough batches, it is one that a step used.
        blocked: Names of parameters whose gradient is zero because of all-zero tensors.
        drawn: Name -> how the fresh values of a tensor are drawn, before it is scaled.
        versions: The versions of neuroinit and torch.
        verified: The outcome of the short trainings of :func:`nio_`; empty without them.
        digests: Name -> hashes of a scaled tensor's values before and after the result is applied.
        about: The model, the date and the size of a batch; ``None`` in files of older versions.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import neuroinit as ni
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(4)]
        >>> result = ni.optimize(model, batches, method=ni.GradInit(steps=2))
        >>> sorted(result.scales), len(result.history)
        (['0.bias', '0.weight', '2.bias', '2.weight'], 2)
        >>> _ = result.apply_(model)
    """

    _title: ClassVar[str] = "Initialization report"

    scales: dict[str, float]
    history: list[StepRecord]
    before: GradientStats | None
    after: GradientStats | None
    settings: dict[str, JSON]
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
        """Scale the parameters of a model in place; existing optimizers stay valid.

        The model should have the values from which the result was computed: the same model, a copy
        of it, or one made with the same seed. Otherwise there is a warning.

        Args:
            model: A model with the same parameter names; wrappers such as DDP are removed.

        Returns:
            The model.

        Raises:
            TypeError: If this is no module.
            ValueError: If a scaled parameter is missing, or the result was applied before. The
                model is then unchanged.
        """
        check_instance("model", model, nn.Module, "a torch.nn.Module")
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
        with deferred(), torch.no_grad():  # no interrupt between two tensors
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
        found = {n: fingerprint(whole(parameters[n].detach())) for n in self.digests}
        scaled = [n for n in found if self.digests[n][0] != self.digests[n][1]]
        if scaled and all(found[n] == self.digests[n][1] for n in scaled):
            raise ValueError(
                "The result was applied to this model before; its scales would be applied twice. "
                "Apply a result once, to the values that it was made from."
            )
        other = [n for n in found if found[n] != self.digests[n][0]]
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
        """Write the result as JSON; a temporary file is written and then renamed."""
        write_text(path, sealed(self.to_dict(), indent=1))

    def to_dict(self) -> dict[str, JSON]:
        """The result as plain values, as :meth:`save` writes them, without the checksum.

        Returns:
            Dicts, lists, strings, numbers and ``None``, ready for ``json.dumps``. Numbers that are
            not finite are the strings ``"nan"``, ``"inf"`` and ``"-inf"``.
        """
        return {
            "format": FORMAT,
            **vars(self),
            "history": [plain(dict(record)) for record in self.history],
            "drawn": {name: asdict(draw) for name, draw in self.drawn.items()},
            "before": _stats_to_json(self.before),
            "after": _stats_to_json(self.after),
            "about": self.about and dict(self.about),
        }

    def frame(self, rows: str = "tensors") -> DataFrame:
        """A table of the result as a pandas data frame; needs ``pip install "neuroinit[pandas]"``.

        Args:
            rows: ``"tensors"`` for one row per parameter tensor, indexed by its name: layer group,
                kind (weight or bias), scale, norm and cosine before and after. ``"history"`` for
                one row per step, indexed by the step.

        Returns:
            A ``pandas.DataFrame``.
        """
        check_choice("rows", rows, ("tensors", "history"))
        if rows == "tensors":
            return records_frame(tensor_rows(self), TensorRow, "name")
        return records_frame(self.history, StepRecord, "step")

    def __repr__(self) -> str:
        return result_text(self)


def _stats_to_json(stats: GradientStats | None) -> dict[str, JSON] | None:
    if stats is None:
        return None
    layers = [plain(dict(layer)) for layer in stats.layers]
    return {
        "loss": stats.loss,
        "norms": stats.norms.tolist(),
        "cosines": stats.cosines.tolist(),
        "layers": layers,
        "batch_stats": stats.batch_stats,
        "agreement": plain(stats.agreement),
    }
