"""Gains: the factor of a weight that compensates for the activation function after it.

For a standard normal ``z`` and an activation function ``f``,

    gain = 1 / sqrt(E[f(z)^2]),

so that the outputs of ``f`` have a mean square of one. Where ``torch.nn.init.calculate_gain`` knows
an activation function, its value is used instead.
"""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import nn
from torch.nn.modules import activation

from neuroinit.distributed.dtensor import whole
from neuroinit.methods.classic.layers import is_layer

# names that `torch.nn.init.calculate_gain` accepts
NAMED_GAINS = ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu")
POINTS = 4096  # quantiles of the normal distribution over which E[f(z)^2] is averaged
_NOT_ELEMENTWISE = (
    nn.MultiheadAttention,
    nn.Softmax,
    nn.Softmax2d,
    nn.LogSoftmax,
    nn.Softmin,
    nn.GLU,
)


def layer_gains(model: nn.Module) -> dict[nn.Module, float | None]:
    """The gain of every layer of a model.

    It is that of the first activation module after the layer and before the next layer, in the
    order in which modules are registered. Where there is none, it is the gain of the activation
    that the model uses most.

    Args:
        model: Any module.

    Returns:
        Layer -> gain; ``None`` for all layers if the model has no activation modules.
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
    """The gain of an activation module; ``None`` for any other module.

    Example:
        >>> round(activation_gain(nn.ReLU()) ** 2, 6)
        2.0
    """
    name = type(module).__name__
    if name not in activation.__all__ or isinstance(module, _NOT_ELEMENTWISE):
        return None
    if name.lower() in NAMED_GAINS:
        return _torch_gain(name.lower())
    if isinstance(module, nn.LeakyReLU):
        return _torch_gain("leaky_relu", module.negative_slope)
    if isinstance(module, nn.PReLU):
        return _torch_gain("leaky_relu", float(whole(module.weight.detach()).mean()))
    quantiles = torch.arange(0.5, POINTS, dtype=torch.float64, device="cpu") / POINTS
    with torch.no_grad():
        z = math.sqrt(2) * torch.erfinv(2 * quantiles - 1)
        mean_square = module.forward(z).square().mean()
    return float(mean_square.rsqrt()) if mean_square > 0 else None


def chosen_gain(nonlinearity: str, found: float | None, default: str) -> float:
    """The gain that a scheme uses for a layer.

    Args:
        nonlinearity: A name in :data:`NAMED_GAINS`, or ``"auto"``.
        found: For ``"auto"``: the gain of the activation after the layer.
        default: For ``"auto"``: the name that is used if ``found`` is ``None``.
    """
    if nonlinearity == "auto" and found is not None:
        return found
    return _torch_gain(default if nonlinearity == "auto" else nonlinearity)


def _torch_gain(name: str, slope: float | None = None) -> float:
    # torch's type is a literal; the name is one of `NAMED_GAINS`
    return float(nn.init.calculate_gain(name, slope))  # type: ignore[arg-type]
