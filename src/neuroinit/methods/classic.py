"""The classic starts, for whole models: Kaiming, Xavier, orthogonal, truncated normal.

Every scheme says how the *weights* of layers are drawn. What it does with all else is one rule:

| parameter | start |
|---|---|
| weights of linear, convolutional, bilinear, recurrent and attention layers | the scheme's |
| their biases | 0 |
| gains of normalization layers | 1, and their shifts 0; all-zero gains of others: left alone |
| embeddings | normal, standard deviation ``1 / sqrt(dimension)``; the padding row 0 |
| any other parameter (bare ones, tokens, positions, weight_norm's), and frozen ones | left alone |

The gates of a recurrent layer, query, key and value of ``nn.MultiheadAttention`` in one tensor, and
the groups of a convolution are drawn as the separate matrices that they are. A tied tensor is drawn
once, for the first module that holds it.
"""

from __future__ import annotations

import fnmatch
import math
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules import activation
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.rnn import RNNCellBase

from neuroinit.common.checks import check_choice, check_number
from neuroinit.methods.base import Initialization
from neuroinit.model.fresh_values import Draw, new_seed
from neuroinit.model.selection import places

# what `torch.nn.init.calculate_gain` knows
NAMED_GAINS = ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu")
QUANTILES = 4096  # of the normal distribution, for the gains that torch does not know
_LAYERS = (nn.Linear, _ConvNd, nn.Bilinear, nn.RNNBase, RNNCellBase, nn.MultiheadAttention)
_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_NOT_ELEMENTWISE = (
    nn.MultiheadAttention,
    nn.Softmax,
    nn.Softmax2d,
    nn.LogSoftmax,
    nn.Softmin,
    nn.GLU,
)
_GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1, nn.LSTMCell: 4, nn.GRUCell: 3, nn.RNNCell: 1}


@dataclass(frozen=True, kw_only=True)
class Classic(Initialization):
    """Draws the weights of a whole model; needs no data.

    Args:
        include: Shell patterns of the names of the parameters that are drawn.
        exclude: Shell patterns of those that are not.
    """

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Fresh values for every parameter that there is a rule for."""
        gains = layer_gains(model)
        found: dict[str, Draw] = {}
        for module, key, name in places(model):
            tensor = module._parameters[key]
            if tensor is None or not tensor.requires_grad or name in found:
                continue
            draw = self._draw(module, key, tensor, gains.get(module))
            if draw is not None and self._takes(name):
                found[name] = draw
        return found

    @abstractmethod
    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """Kind and size of a weight's :class:`Draw`; the gain is that of the activation after it,
        ``None`` where the model shows none."""

    def embedding(self, dimension: int) -> tuple[str, float]:
        """Kind and size of an embedding's :class:`Draw`: vectors of about length one."""
        return "normal", 1 / math.sqrt(dimension)

    def _takes(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, p) for p in self.include) and not any(
            fnmatch.fnmatchcase(name, p) for p in self.exclude
        )

    def _draw(self, module: nn.Module, key: str, tensor: Tensor, gain: float | None) -> Draw | None:
        if is_weight(module, key, tensor):
            blocks = matrices_in(module, key)
            kind, size = self.weight(*fans(module, tensor, blocks), gain)
            return Draw(kind, size, new_seed(), blocks)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            kind, size = self.embedding(tensor.shape[1])
            return Draw(kind, size, new_seed(), zero_row=module.padding_idx)
        if is_norm(module) and key in ("weight", "bias"):
            if not isinstance(module, _NORMS) and key == "weight" and not tensor.any():
                return None  # a gain of the form 1 + weight
            return Draw("constant", float(key == "weight"))
        if is_layer(module) and key.startswith(("bias", "in_proj_bias")) and tensor.dim() == 1:
            return Draw("constant", 0.0)
        return None


@dataclass(frozen=True, kw_only=True)
class Kaiming(Classic):
    """He et al. 2015: ``std = gain / sqrt(fan)``.

    Args:
        mode: ``"fan_in"`` keeps the variance of activations, ``"fan_out"`` that of gradients.
        distribution: ``"normal"`` or ``"uniform"``.
        nonlinearity: ``"auto"`` takes the gain from the activation module that follows a layer, or
            the one most used in the model, or ReLU; else a name that
            ``torch.nn.init.calculate_gain`` knows.

    Example:
        >>> Kaiming(mode="fan_out", distribution="uniform").nonlinearity
        'auto'
    """

    mode: str = "fan_in"
    distribution: str = "normal"
    nonlinearity: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mode", self.mode, ("fan_in", "fan_out"))
        check_choice("distribution", self.distribution, ("normal", "uniform"))
        check_choice("nonlinearity", self.nonlinearity, ("auto", *NAMED_GAINS))

    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """``gain / sqrt(fan)``."""
        factor = chosen_gain(self.nonlinearity, gain, "relu")
        fan = fan_in if self.mode == "fan_in" else fan_out
        return _spread(self.distribution, factor / math.sqrt(max(fan, 1)))


@dataclass(frozen=True, kw_only=True)
class Xavier(Classic):
    """Glorot and Bengio 2010: ``std = gain * sqrt(2 / (fan_in + fan_out))``.

    Args:
        distribution: ``"normal"`` or ``"uniform"``.
        nonlinearity: As for :class:`Kaiming`; linear where the model shows no activation.
    """

    distribution: str = "normal"
    nonlinearity: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("distribution", self.distribution, ("normal", "uniform"))
        check_choice("nonlinearity", self.nonlinearity, ("auto", *NAMED_GAINS))

    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """``gain * sqrt(2 / (fan_in + fan_out))``."""
        factor = chosen_gain(self.nonlinearity, gain, "linear")
        return _spread(self.distribution, factor * math.sqrt(2 / max(fan_in + fan_out, 1)))


@dataclass(frozen=True, kw_only=True)
class Orthogonal(Classic):
    """Saxe et al. 2014: orthonormal rows or columns, times the gain.

    Args:
        nonlinearity: As for :class:`Kaiming`; linear where the model shows no activation.
    """

    nonlinearity: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("nonlinearity", self.nonlinearity, ("auto", *NAMED_GAINS))

    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """An orthogonal matrix times the gain."""
        return "orthogonal", chosen_gain(self.nonlinearity, gain, "linear")


@dataclass(frozen=True, kw_only=True)
class TruncNormal(Classic):
    """A normal cut off at two standard deviations, the same for weights and embeddings.

    Args:
        std: Standard deviation before the cut; 0.02 is what vision transformers use.
    """

    std: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("std", self.std, 0.0)

    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """The same everywhere."""
        return "trunc_normal", self.std

    def embedding(self, dimension: int) -> tuple[str, float]:
        """The same everywhere."""
        return "trunc_normal", self.std


def _spread(distribution: str, std: float) -> tuple[str, float]:
    return distribution, std * (math.sqrt(3) if distribution == "uniform" else 1.0)


# -- which parameter is what -----------------------------------------------------------------------


def is_layer(module: nn.Module) -> bool:
    """Whether a module multiplies by a weight; ``Conv1D`` is transformers' linear layer."""
    return isinstance(module, _LAYERS) or type(module).__name__ == "Conv1D"


def is_affine(module: nn.Module) -> bool:
    """Whether a module is a linear or convolutional layer, whose output is that of its weight."""
    return isinstance(module, (nn.Linear, _ConvNd)) or type(module).__name__ == "Conv1D"


def is_weight(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Whether a parameter is the weight of a layer; weight_norm's two halves are not."""
    named = key.startswith("weight") or key.endswith("proj_weight")
    return is_layer(module) and named and tensor.dim() >= 2 and key not in ("weight_g", "weight_v")


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalizes; those of other libraries have it in their name."""
    named = "norm" in type(module).__name__.lower() and not list(module.children())
    return isinstance(module, _NORMS) or named


def matrices_in(module: nn.Module, key: str) -> int:
    """How many matrices one tensor holds, one below the other."""
    if key == "in_proj_weight":
        return 3
    if isinstance(module, _ConvNd):
        return module.groups
    if key.startswith(("weight_ih", "weight_hh")):
        return next((n for kind, n in _GATES.items() if isinstance(module, kind)), 1)
    return 1


def fans(module: nn.Module, tensor: Tensor, blocks: int = 1) -> tuple[int, int]:
    """Inputs of one output, and outputs of one input; those of one group of a convolution."""
    receptive = math.prod(tensor.shape[2:])
    rows, columns = tensor.shape[0] // blocks, tensor.shape[1]
    if isinstance(module, nn.Bilinear):
        return columns * receptive, rows
    if isinstance(module, _ConvTransposeNd):
        return rows * receptive, columns * receptive
    if isinstance(module, _ConvNd):
        return columns * receptive, rows * receptive
    if type(module).__name__ == "Conv1D":
        return rows, columns
    return columns, rows


# -- gains -----------------------------------------------------------------------------------------


def layer_gains(model: nn.Module) -> dict[nn.Module, float | None]:
    """The gain of every layer: of the first activation after it, in the order of registration.

    Where no activation module comes before the next layer, it is the gain of the activation that
    the model uses most; ``None`` if there is none at all.
    """
    own: dict[nn.Module, float] = {}
    used: Counter[float] = Counter()
    layer: nn.Module | None = None
    for module in model.modules():
        gain = activation_gain(module)
        if gain is not None:
            used[gain] += 1
            if layer is not None:
                own.setdefault(layer, gain)
        elif is_layer(module):
            layer = module
    usual = used.most_common(1)[0][0] if used else None
    return {m: own.get(m, usual) for m in model.modules() if is_layer(m)}


def activation_gain(module: nn.Module) -> float | None:
    """``1 / sqrt(E f(z)^2)`` for normal ``z``, or torch's value; ``None`` for other modules."""
    name = type(module).__name__
    if name not in activation.__all__ or isinstance(module, _NOT_ELEMENTWISE):
        return None
    name = name.lower()
    if name in NAMED_GAINS:
        return _torch_gain(name)
    if isinstance(module, (nn.LeakyReLU, nn.PReLU)):
        slope = (
            module.negative_slope
            if isinstance(module, nn.LeakyReLU)
            else module.weight.detach().mean()
        )
        return _torch_gain("leaky_relu", float(slope))
    middle = torch.arange(0.5, QUANTILES, dtype=torch.float64, device="cpu") / QUANTILES
    with torch.no_grad():
        square = module.forward(math.sqrt(2) * torch.erfinv(2 * middle - 1)).square().mean()
    return float(square.rsqrt()) if square > 0 else None


def chosen_gain(nonlinearity: str, found: float | None, otherwise: str) -> float:
    """The gain of a named activation, of the one that was found, or of a last resort."""
    if nonlinearity == "auto" and found is not None:
        return found
    name = otherwise if nonlinearity == "auto" else nonlinearity
    return _torch_gain(name)


def _torch_gain(name: str, slope: float | None = None) -> float:
    return float(nn.init.calculate_gain(name, slope))  # type: ignore[arg-type]
