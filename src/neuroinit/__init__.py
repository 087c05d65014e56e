"""neuroinit: optimize the initialization of any PyTorch model before training it."""

from neuroinit.diagnose import GradientStats, LayerStats, gradient_stats, gradsign
from neuroinit.errors import GradientError, NonFiniteError, ZeroGradientError
from neuroinit.measures import Moments
from neuroinit.methods.base import Method
from neuroinit.methods.nio import NIO
from neuroinit.methods.presets import PRESETS
from neuroinit.optimize import nio_, optimize
from neuroinit.result import Result, StepRecord, load_result
from neuroinit.score import score
from neuroinit.version import __version__

TYPE_CHECKING = False  # typing's own would be one more import
if TYPE_CHECKING:
    from neuroinit import plots

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
    "plots",
    "score",
]


def __getattr__(name: str) -> object:
    """``ni.plots`` is imported when it is first used; matplotlib, when it first draws."""
    if name == "plots":
        import importlib

        return importlib.import_module("neuroinit.plots")
    raise AttributeError(f"module 'neuroinit' has no attribute {name!r}")
