"""neuroinit: optimize the initialization of any PyTorch model before training it."""

from typing import TYPE_CHECKING

from neuroinit.auto import auto_
from neuroinit.compare import compare
from neuroinit.comparison import Comparison, ComparisonRecord
from neuroinit.diagnose import GradientStats, LayerStats, gradient_stats, gradsign
from neuroinit.errors import GradientError, LostRankError, NonFiniteError, ZeroGradientError
from neuroinit.inplace import (
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
from neuroinit.measures import Moments
from neuroinit.methods.base import Initialization, Method
from neuroinit.methods.classic import Kaiming, Orthogonal, TruncNormal, Xavier
from neuroinit.methods.fixup import FixUp
from neuroinit.methods.gradinit import GRADINIT_PRESETS, GradInit
from neuroinit.methods.lsuv import LSUV
from neuroinit.methods.metainit import MetaInit
from neuroinit.methods.nio import NIO
from neuroinit.methods.presets import PRESETS
from neuroinit.methods.rules import BoundedAscent, HeldNorm
from neuroinit.methods.warmup import Warmup
from neuroinit.optimize import optimize
from neuroinit.outcome import AutoResult, CandidateRecord
from neuroinit.random_data import random_batches
from neuroinit.result import Result, StepRecord, load_result
from neuroinit.scales import OneScale, Plain, TwoMomentAdam
from neuroinit.score import score
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
