"""The fields of methods as TypedDicts, for functions that take them as keywords."""

from __future__ import annotations

from typing import TypedDict

from neuroinit.methods.updates import Update
from neuroinit.model.parameters.selection import ParameterFilter


class InitializationFields(TypedDict, total=False):
    """Fields of every initialization."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]


class MethodFields(InitializationFields, total=False):
    """Fields of every method that learns scales."""

    steps: int
    lr: float
    min_scale: float
    reinit_zeros: float | None
    tolerance: float


class GradInitFields(MethodFields, total=False):
    """Fields of :class:`GradInit`."""

    gamma: float
    eta: float
    family: str
    normalize: bool
    through_update: bool
    overlap: float
    update: Update
    gradients_of: ParameterFilter | None
    min_bias_scale: float | None


class MetaInitFields(MethodFields, total=False):
    """Fields of :class:`MetaInit`."""

    momentum: float
    eps: float
    update: Update | None
    scales_of: ParameterFilter | None
    batch_stats: str
    sign_flips: bool


class LSUVFields(InitializationFields, total=False):
    """Fields of :class:`LSUV`."""

    steps: int
    tolerance_var: float
    tries: int
    measure: str
    batch_stats: str
    redraw: bool


class KaimingFields(InitializationFields, total=False):
    """Keywords of :func:`kaiming_` and :func:`fixup_`."""

    mode: str
    distribution: str
    nonlinearity: str


class XavierFields(InitializationFields, total=False):
    """Keywords of :func:`xavier_`."""

    distribution: str
    nonlinearity: str


class OrthogonalFields(InitializationFields, total=False):
    """Keywords of :func:`orthogonal_`."""

    nonlinearity: str


class TruncNormalFields(InitializationFields, total=False):
    """Keywords of :func:`trunc_normal_`."""

    std: float
