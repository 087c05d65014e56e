"""The fields of NIO as a TypedDict."""

from __future__ import annotations

from neuroinit.methods.fields import MethodFields
from neuroinit.methods.nio.rules import Rule
from neuroinit.model.parameters.selection import ParameterFilter


class NIOFields(MethodFields, total=False):
    """Fields of :class:`NIO`."""

    gamma: float | str
    gamma_per_loss: float
    rate: float | None
    family: str
    sub_batches: int | str
    overlap: float
    split: str
    batch_stats: str
    rule: Rule | None
    gradients_of: ParameterFilter | None
    min_bias_scale: float | None
