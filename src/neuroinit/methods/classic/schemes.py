"""Classic initializations of whole models: Kaiming, Xavier, orthogonal, truncated normal.

A scheme says how the *weights* of layers are drawn. Everything else is the same for all schemes:

| parameter | new value |
|---|---|
| weights of linear, convolutional, bilinear, recurrent and attention layers | drawn by the scheme |
| their biases | 0 |
| normalization layers | weights (gains) 1, biases 0 |
| embeddings | normal, standard deviation ``1 / sqrt(dimension)``; the padding row is 0 |
| all other parameters, and frozen ones | unchanged |

Other parameters are, for example, class tokens, position tables and the factors of ``weight_norm``.
A normalization layer that is not torch's keeps an all-zero weight: its gain may be ``1 + weight``.

The gates of a recurrent layer, the query, key and value matrices of ``nn.MultiheadAttention`` and
the groups of a convolution are drawn as separate matrices. A tied tensor is drawn once, for the
first module that holds it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from neuroinit.common.checks import check_choice, check_number
from neuroinit.common.process.random_state import new_seed
from neuroinit.distributed.dtensor import all_zero
from neuroinit.methods.base import Initialization
from neuroinit.methods.classic.gains import NAMED_GAINS, chosen_gain, layer_gains
from neuroinit.methods.classic.layers import (
    EMBEDDINGS,
    NORMS,
    fans,
    is_layer,
    is_norm,
    is_weight,
    matrices_in,
)
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import places


@dataclass(frozen=True, kw_only=True)
class Classic(Initialization):
    """Base class of initializations that draw new values for a whole model and need no data.

    A subclass defines :meth:`weight`.

    Args:
        include: Shell patterns of the names of the parameters that get new values.
        exclude: Shell patterns of those that do not, even if included.
    """

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Parameter name -> how it is drawn, for the parameters in the table above."""
        gains, takes = layer_gains(model), self.selection().takes
        found: dict[str, Draw] = {}
        for module, key, name in places(model):
            tensor = model.get_parameter(name)
            if not tensor.requires_grad or name in found:
                continue
            draw = self._draw(module, key, tensor, gains.get(module))
            if draw is not None and takes(name):
                found[name] = draw
        return found

    @abstractmethod
    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """Kind and size of the :class:`Draw` of a weight.

        Args:
            fan_in: Number of inputs that one output depends on.
            fan_out: Number of outputs that depend on one input.
            gain: Gain of the activation after the layer; ``None`` if the model has no activations.
        """

    def embedding(self, dimension: int) -> tuple[str, float]:
        """Kind and size of the :class:`Draw` of an embedding: vectors of length one on average."""
        return "normal", 1 / math.sqrt(dimension)

    def _draw(self, module: nn.Module, key: str, tensor: Tensor, gain: float | None) -> Draw | None:
        if is_weight(module, key, tensor):
            matrices = matrices_in(module, key)
            kind, size = self.weight(*fans(module, tensor, matrices), gain)
            return Draw(kind, size, new_seed(), matrices)
        if isinstance(module, EMBEDDINGS):
            kind, size = self.embedding(tensor.shape[1])
            return Draw(kind, size, new_seed(), zero_row=module.padding_idx)
        if is_norm(module) and key in ("weight", "bias"):
            if not isinstance(module, NORMS) and key == "weight" and all_zero(tensor):
                return None  # the gain may be 1 + weight
            return Draw("constant", float(key == "weight"))
        if is_layer(module) and key.startswith(("bias", "in_proj_bias")) and tensor.dim() == 1:
            return Draw("constant", 0.0)
        return None


@dataclass(frozen=True, kw_only=True)
class Kaiming(Classic):
    """Kaiming initialization: ``std = gain / sqrt(fan)``.

    He et al., *Delving Deep into Rectifiers*, ICCV 2015, Eqs. 10 and 14.

    Args:
        mode: Which ``fan``: ``"fan_in"`` keeps the variance of the activations from layer to layer,
            ``"fan_out"`` that of the gradients.
        distribution: ``"normal"`` or ``"uniform"``.
        nonlinearity: ``"auto"`` uses the gain of the activation module after a layer, else of the
            activation that the model uses most, else of ReLU. Or a name that
            ``torch.nn.init.calculate_gain`` knows.
        include: Shell patterns of the names of the parameters that get new values.
        exclude: Shell patterns of those that do not, even if included.

    Raises:
        ValueError: If a field is not one of its choices.

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
        """``std = gain / sqrt(fan)``."""
        factor = chosen_gain(self.nonlinearity, gain, "relu")
        fan = fan_in if self.mode == "fan_in" else fan_out
        return _with_deviation(self.distribution, factor / math.sqrt(max(fan, 1)))


@dataclass(frozen=True, kw_only=True)
class Xavier(Classic):
    """Xavier initialization: ``std = gain * sqrt(2 / (fan_in + fan_out))``.

    Glorot and Bengio, *Understanding the difficulty of training deep feedforward neural networks*,
    AISTATS 2010, Eq. 12.

    Args:
        distribution: ``"normal"`` or ``"uniform"``.
        nonlinearity: As for :class:`Kaiming`, but without a gain if the model has no activation
            modules.
        include: Shell patterns of the names of the parameters that get new values.
        exclude: Shell patterns of those that do not, even if included.

    Raises:
        ValueError: If a field is not one of its choices.

    Example:
        >>> Xavier(distribution="uniform").nonlinearity
        'auto'
    """

    distribution: str = "normal"
    nonlinearity: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("distribution", self.distribution, ("normal", "uniform"))
        check_choice("nonlinearity", self.nonlinearity, ("auto", *NAMED_GAINS))

    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """``std = gain * sqrt(2 / (fan_in + fan_out))``."""
        factor = chosen_gain(self.nonlinearity, gain, "linear")
        return _with_deviation(self.distribution, factor * math.sqrt(2 / max(fan_in + fan_out, 1)))


@dataclass(frozen=True, kw_only=True)
class Orthogonal(Classic):
    """Orthogonal initialization: orthonormal rows or columns, whichever are fewer, times the gain.

    Saxe et al., *Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks*, ICLR 2014.

    Args:
        nonlinearity: As for :class:`Kaiming`, but without a gain if the model has no activation
            modules.
        include: Shell patterns of the names of the parameters that get new values.
        exclude: Shell patterns of those that do not, even if included.

    Raises:
        ValueError: If a field is not one of its choices.

    Example:
        >>> Orthogonal(nonlinearity="relu").include
        ('*',)
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
    """Weights and embeddings from a normal distribution that is cut off at ``2 std``.

    Args:
        std: Standard deviation before the cut; 0.02 is usual for vision transformers.
        include: Shell patterns of the names of the parameters that get new values.
        exclude: Shell patterns of those that do not, even if included.

    Raises:
        ValueError: If ``std`` is not positive and finite.

    Example:
        >>> TruncNormal().std
        0.02
    """

    std: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("std", self.std, 0.0)

    def weight(self, fan_in: int, fan_out: int, gain: float | None) -> tuple[str, float]:
        """The same standard deviation for every layer."""
        return "trunc_normal", self.std

    def embedding(self, dimension: int) -> tuple[str, float]:
        """The same standard deviation as for layers."""
        return "trunc_normal", self.std


def _with_deviation(distribution: str, std: float) -> tuple[str, float]:
    """A draw with this standard deviation; uniform values lie within ``sqrt(3) std``."""
    return distribution, std * (math.sqrt(3) if distribution == "uniform" else 1.0)
