"""neuroinit: optimize the initialization of any PyTorch model before training it.

Public names are imported when they are first used (PEP 562). Importing all of them takes 60 ms and
more after torch, most of it for frozen dataclasses and for parts that a program does not use.
"""

from neuroinit.version import __version__

TYPE_CHECKING = False  # type checkers treat it as true; importing `typing` takes milliseconds
if TYPE_CHECKING:
    from neuroinit import plots
    from neuroinit.choose.auto import auto_
    from neuroinit.choose.auto_result import AutoResult, CandidateRecord
    from neuroinit.choose.compare import compare
    from neuroinit.choose.comparison_table import Comparison, ComparisonRecord
    from neuroinit.choose.score import score
    from neuroinit.common.errors import (
        GradientError,
        LostRankError,
        NonFiniteError,
        ZeroGradientError,
    )
    from neuroinit.gradients.measures import Moments
    from neuroinit.gradients.statistics.gradient_stats import GradientStats, LayerStats
    from neuroinit.gradients.statistics.one_batch import gradient_stats, gradsign
    from neuroinit.methods.base import Initialization, Method
    from neuroinit.methods.classic.fixup import FixUp
    from neuroinit.methods.classic.schemes import Kaiming, Orthogonal, TruncNormal, Xavier
    from neuroinit.methods.gradinit import GRADINIT_PRESETS, GradInit
    from neuroinit.methods.lsuv import LSUV
    from neuroinit.methods.metainit import MetaInit
    from neuroinit.methods.nio.common_factor import CommonFactor
    from neuroinit.methods.nio.held_norm import HeldNorm
    from neuroinit.methods.nio.method import NIO
    from neuroinit.methods.nio.presets import PRESETS
    from neuroinit.methods.nio.rules import BoundedAscent
    from neuroinit.methods.small_branches import SmallBranches
    from neuroinit.methods.updates import OneScale, Plain, TwoMomentAdam
    from neuroinit.methods.warmup import Warmup
    from neuroinit.model.arguments.random_data import random_batches
    from neuroinit.run.drawn_in_place import fixup_, kaiming_, orthogonal_, trunc_normal_, xavier_
    from neuroinit.run.in_place import gradinit_, lsuv_, metainit_, nio_
    from neuroinit.run.optimize import optimize
    from neuroinit.run.results.loading import load_result
    from neuroinit.run.results.result import Result, StepRecord

__all__ = [
    "GRADINIT_PRESETS",
    "LSUV",
    "NIO",
    "PRESETS",
    "AutoResult",
    "BoundedAscent",
    "CandidateRecord",
    "CommonFactor",
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
    "SmallBranches",
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

# module -> its public names: what the imports above say to type checkers, for `__getattr__`
_NAMES = {
    "choose.auto": "auto_",
    "choose.auto_result": "AutoResult CandidateRecord",
    "choose.compare": "compare",
    "choose.comparison_table": "Comparison ComparisonRecord",
    "choose.score": "score",
    "common.errors": "GradientError LostRankError NonFiniteError ZeroGradientError",
    "gradients.measures": "Moments",
    "gradients.statistics.gradient_stats": "GradientStats LayerStats",
    "gradients.statistics.one_batch": "gradient_stats gradsign",
    "methods.base": "Initialization Method",
    "methods.classic.fixup": "FixUp",
    "methods.classic.schemes": "Kaiming Orthogonal TruncNormal Xavier",
    "methods.gradinit": "GRADINIT_PRESETS GradInit",
    "methods.lsuv": "LSUV",
    "methods.metainit": "MetaInit",
    "methods.nio.common_factor": "CommonFactor",
    "methods.nio.held_norm": "HeldNorm",
    "methods.nio.method": "NIO",
    "methods.nio.presets": "PRESETS",
    "methods.nio.rules": "BoundedAscent",
    "methods.small_branches": "SmallBranches",
    "methods.updates": "OneScale Plain TwoMomentAdam",
    "methods.warmup": "Warmup",
    "model.arguments.random_data": "random_batches",
    "run.drawn_in_place": "fixup_ kaiming_ orthogonal_ trunc_normal_ xavier_",
    "run.in_place": "gradinit_ lsuv_ metainit_ nio_",
    "run.optimize": "optimize",
    "run.results.loading": "load_result",
    "run.results.result": "Result StepRecord",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ("distributed", "integrations", "methods", "plots")  # documented by their own names


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"neuroinit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'neuroinit' has no attribute {name!r}")
    value = getattr(import_module(f"neuroinit.{_HOMES[name]}"), name)
    globals()[name] = value  # a cache: this function is not called for the name again
    return value


def __dir__() -> list[str]:
    return __all__
