"""neuroinit: optimize the initialization of any PyTorch model before training it."""

from neuroinit.diagnose import GradientStats, LayerStats, gradient_stats, gradsign
from neuroinit.errors import GradientError, NonFiniteError, ZeroGradientError
from neuroinit.measures import Moments
from neuroinit.methods.base import Method
from neuroinit.methods.nio import NIO
from neuroinit.methods.presets import PRESETS
from neuroinit.optimize import nio_, optimize
from neuroinit.result import Result, StepRecord, load_result
from neuroinit.version import __version__

__all__ = [
    "NIO",
    "PRESETS",
    "GradientError",
    "GradientStats",
    "LayerStats",
    "Method",
    "Moments",
    "NonFiniteError",
    "Result",
    "StepRecord",
    "ZeroGradientError",
    "__version__",
    "gradient_stats",
    "gradsign",
    "load_result",
    "nio_",
    "optimize",
]
