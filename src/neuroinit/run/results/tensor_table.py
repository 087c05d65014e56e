"""One row for every parameter tensor of a result: its layer group, scale, norm and cosine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuroinit.gradients.statistics.gradient_stats import GradientStats, LayerStats, Record

if TYPE_CHECKING:
    from neuroinit.run.results.result import Result

MOST_GROUPS = 40  # more would not be legible in a chart of one column


@dataclass(frozen=True)
class TensorRow(Record):
    """A row of the table: one parameter tensor. Unknown numbers are ``nan``.

    Args:
        name: The parameter's name.
        group: The block of the model that it belongs to, see :func:`layer_groups`.
        kind: ``"weight"`` or ``"bias"``.
        redrawn: Whether the method drew new values for it.
        scale: The scale of the tensor.
        norm_before: Mean norm of its part of the sub-batch gradients, before.
        norm_after: The same, after.
        cosine_before: Mean cosine of its part of the sub-batch gradients, before.
        cosine_after: The same, after.
    """

    name: str
    group: str
    kind: str
    redrawn: bool
    scale: float
    norm_before: float
    norm_after: float
    cosine_before: float
    cosine_after: float


def tensor_rows(result: Result) -> list[TensorRow]:
    """The rows of a result, in the order of the model.

    Args:
        result: A result of :func:`optimize`.

    Returns:
        One row for every tensor that was scaled, redrawn or measured.
    """
    before, after = _by_name(result.before), _by_name(result.after)
    names = list(dict.fromkeys([*after, *before, *result.scales, *result.drawn]))
    return [
        TensorRow(
            name=name,
            group=group,
            kind=tensor_kind(name),
            redrawn=name in result.drawn,
            scale=result.scales.get(name, math.nan),
            norm_before=before[name].norm if name in before else math.nan,
            norm_after=after[name].norm if name in after else math.nan,
            cosine_before=before[name].cosine if name in before else math.nan,
            cosine_after=after[name].cosine if name in after else math.nan,
        )
        for name, group in zip(names, layer_groups(names), strict=True)
    ]


def tensor_kind(name: str) -> str:
    """``"bias"`` or ``"weight"``, by the last part of a parameter's name.

    Example:
        >>> tensor_kind("lstm.bias_ih_l0"), tensor_kind("norm.weight"), tensor_kind("positions")
        ('bias', 'weight', 'weight')
    """
    last = name.rpartition(".")[2]
    return "bias" if "bias" in last and "weight" not in last else "weight"


def layer_groups(names: Sequence[str], most: int = MOST_GROUPS) -> list[str]:
    """The layer group of every tensor: the first parts of its name.

    All names are cut at the same depth: the first one that gives the largest number of groups,
    and at most ``most``.

    Args:
        names: Parameter names in the order of the model.
        most: Largest number of groups, unless the first parts alone are more.

    Returns:
        One group for every name.

    Example:
        >>> layer_groups(["stem.weight", "blocks.0.fc.weight", "blocks.1.fc.weight"], most=3)
        ['stem', 'blocks.0', 'blocks.1']
        >>> layer_groups(["stem.weight", "blocks.0.fc.weight", "blocks.1.fc.weight"], most=2)
        ['stem', 'blocks', 'blocks']
    """
    modules = [name.split(".")[:-1] or [name] for name in names]
    found = [parts[0] for parts in modules]
    for depth in range(2, max(map(len, modules), default=0) + 1):
        deeper = [".".join(parts[:depth]) for parts in modules]
        if len(set(deeper)) > most:
            break
        if len(set(deeper)) > len(set(found)):
            found = deeper
    return found


def _by_name(stats: GradientStats | None) -> dict[str, LayerStats]:
    return {layer.name: layer for layer in stats.layers} if stats else {}
