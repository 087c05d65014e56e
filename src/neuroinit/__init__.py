"""neuroinit: optimize the initialization of any PyTorch model before training it."""

from typing import TYPE_CHECKING

from neuroinit.common.interrupt import exit_on_interrupt

exit_on_interrupt()  # first, since the imports below import torch, which takes seconds

# ruff: noqa: E402
from neuroinit.choose.auto import auto_
from neuroinit.choose.auto_result import AutoResult, CandidateRecord
from neuroinit.choose.compare import compare
from neuroinit.choose.comparison_table import Comparison, ComparisonRecord
from neuroinit.choose.score import score
from neuroinit.common.errors import GradientError, LostRankError, NonFiniteError, ZeroGradientError
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.statistics import GradientStats, LayerStats, gradient_stats, gradsign
from neuroinit.methods.base import Initialization, Method
from neuroinit.methods.classic import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fixup import FixUp
from neuroinit.methods.gradinit import GRADINIT_PRESETS, GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio.method import NIO
from neuroinit.methods.nio.presets import PRESETS
from neuroinit.methods.nio.rules import BoundedAscent, HeldNorm
from neuroinit.methods.updates import OneScale, Plain, TwoMomentAdam
from neuroinit.methods.warmup import Warmup
from neuroinit.model.random_data import random_batches
from neuroinit.run.in_place import (
    fixup_,
    gradinit_,
    kaiming_,
    lsuv_,
    metainit_,
    nio_,
    orthogonal_,
    trunc_normal_,
    xavier_,
)
from neuroinit.run.optimize import optimize
from neuroinit.run.result import Result, StepRecord, load_result
from neuroinit.version import __version__

if TYPE_CHECKING:
    from neuroinit import plots

__all__ = [
    "GRADINIT_PRESETS",
    "LSUV",
    "NIO",
    "PRESETS",
    "AutoResult",
    "BoundedAscent",
    "CandidateRecord",
    "Comparison",
    "ComparisonRecord",
    "FixUp",
    "GradInit",
    "GradientError",
    "GradientStats",
    "HeldNorm",
    "Initialization",
    "Kaiming",
    "LayerStats",
    "LostRankError",
    "MetaInit",
    "Method",
    "Moments",
    "NonFiniteError",
    "OneScale",
    "Orthogonal",
    "Plain",
    "Result",
    "StepRecord",
    "TruncNormal",
    "TwoMomentAdam",
    "Warmup",
    "Xavier",
    "ZeroGradientError",
    "__version__",
    "auto_",
    "compare",
    "fixup_",
    "gradient_stats",
    "gradinit_",
    "gradsign",
    "kaiming_",
    "load_result",
    "lsuv_",
    "metainit_",
    "nio_",
    "optimize",
    "orthogonal_",
    "plots",
    "random_batches",
    "score",
    "trunc_normal_",
    "xavier_",
]


def __getattr__(name: str) -> object:
    """``ni.plots`` is imported when it is first used; matplotlib, when it first draws."""
    if name == "plots":
        import importlib

        return importlib.import_module("neuroinit.plots")
    raise AttributeError(f"module 'neuroinit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
