"""neuroinit: optimize the initialization of any PyTorch model before training it.

Public names are imported when they are first used (PEP 562). Importing all of them takes 60 ms and
more after torch, most of it for frozen dataclasses and for parts that a program does not use.
"""

from neuroinit.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers treat it as true; importing `typing` takes milliseconds
if TYPE_CHECKING:  # `as` makes a name public for them
    from neuroinit import plots as plots
    from neuroinit.choose.auto import auto_ as auto_
    from neuroinit.choose.auto_result import AutoResult as AutoResult
    from neuroinit.choose.auto_result import CandidateRecord as CandidateRecord
    from neuroinit.choose.compare import compare as compare
    from neuroinit.choose.comparison_table import Comparison as Comparison
    from neuroinit.choose.comparison_table import ComparisonRecord as ComparisonRecord
    from neuroinit.choose.score import score as score
    from neuroinit.common.errors import GradientError as GradientError
    from neuroinit.common.errors import LostRankError as LostRankError
    from neuroinit.common.errors import NonFiniteError as NonFiniteError
    from neuroinit.common.errors import ZeroGradientError as ZeroGradientError
    from neuroinit.gradients.measures import Moments as Moments
    from neuroinit.gradients.statistics.gradient_stats import GradientStats as GradientStats
    from neuroinit.gradients.statistics.gradient_stats import LayerStats as LayerStats
    from neuroinit.gradients.statistics.one_batch import gradient_stats as gradient_stats
    from neuroinit.gradients.statistics.one_batch import gradsign as gradsign
    from neuroinit.methods.base import Initialization as Initialization
    from neuroinit.methods.base import Method as Method
    from neuroinit.methods.classic.fixup import FixUp as FixUp
    from neuroinit.methods.classic.schemes import Kaiming as Kaiming
    from neuroinit.methods.classic.schemes import Orthogonal as Orthogonal
    from neuroinit.methods.classic.schemes import TruncNormal as TruncNormal
    from neuroinit.methods.classic.schemes import Xavier as Xavier
    from neuroinit.methods.gradinit import GRADINIT_PRESETS as GRADINIT_PRESETS
    from neuroinit.methods.gradinit import GradInit as GradInit
    from neuroinit.methods.lsuv import LSUV as LSUV
    from neuroinit.methods.metainit import MetaInit as MetaInit
    from neuroinit.methods.nio.common_factor import CommonFactor as CommonFactor
    from neuroinit.methods.nio.held_norm import HeldNorm as HeldNorm
    from neuroinit.methods.nio.method import NIO as NIO
    from neuroinit.methods.nio.presets import PRESETS as PRESETS
    from neuroinit.methods.nio.rules import BoundedAscent as BoundedAscent
    from neuroinit.methods.small_branches import SmallBranches as SmallBranches
    from neuroinit.methods.updates import OneScale as OneScale
    from neuroinit.methods.updates import Plain as Plain
    from neuroinit.methods.updates import TwoMomentAdam as TwoMomentAdam
    from neuroinit.methods.warmup import Warmup as Warmup
    from neuroinit.model.arguments.random_data import random_batches as random_batches
    from neuroinit.run.drawn_in_place import fixup_ as fixup_
    from neuroinit.run.drawn_in_place import kaiming_ as kaiming_
    from neuroinit.run.drawn_in_place import orthogonal_ as orthogonal_
    from neuroinit.run.drawn_in_place import trunc_normal_ as trunc_normal_
    from neuroinit.run.drawn_in_place import xavier_ as xavier_
    from neuroinit.run.in_place import gradinit_ as gradinit_
    from neuroinit.run.in_place import lsuv_ as lsuv_
    from neuroinit.run.in_place import metainit_ as metainit_
    from neuroinit.run.in_place import nio_ as nio_
    from neuroinit.run.optimize import optimize as optimize
    from neuroinit.run.results.loading import load_result as load_result
    from neuroinit.run.results.result import Result as Result
    from neuroinit.run.results.result import StepRecord as StepRecord

# module -> its public names, for `__getattr__`: the same as above
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

__all__ = sorted([*_HOMES, "plots", "__version__"])


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
    return sorted({*__all__, *_MODULES})
