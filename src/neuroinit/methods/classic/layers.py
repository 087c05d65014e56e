"""Classifies parameters: weights of layers, gains of normalization layers, and others.

Also the number of inputs and outputs of a weight, which the classic initializations need.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.rnn import RNNCellBase

LAYERS = (nn.Linear, _ConvNd, nn.Bilinear, nn.RNNBase, RNNCellBase, nn.MultiheadAttention)
NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
GATES = {nn.LSTM: 4, nn.GRU: 3, nn.LSTMCell: 4, nn.GRUCell: 3}  # matrices in one weight


def is_layer(module: nn.Module) -> bool:
    """Whether a module multiplies its input by a weight.

    ``Conv1D`` is the linear layer of Hugging Face's GPT-2, recognized by its name.
    """
    return isinstance(module, LAYERS) or type(module).__name__ == "Conv1D"


def is_affine(module: nn.Module) -> bool:
    """Whether a module is a linear or convolutional layer: its output is linear in its weight."""
    return isinstance(module, (nn.Linear, _ConvNd)) or type(module).__name__ == "Conv1D"


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalizes: one of torch's, or a module with "norm" in its class name."""
    named = "norm" in type(module).__name__.lower() and not list(module.children())
    return isinstance(module, NORMS) or named


def is_weight(module: nn.Module, key: str, tensor: Tensor) -> bool:
    """Whether a parameter is the weight of a layer.

    ``weight_g`` and ``weight_v``, the two factors of ``weight_norm``, are not.

    Args:
        module: The module that holds the parameter.
        key: Its name in that module.
        tensor: The parameter.
    """
    named = key.startswith("weight") or key.endswith("proj_weight")
    return is_layer(module) and named and tensor.dim() >= 2 and key not in ("weight_g", "weight_v")


def matrices_in(module: nn.Module, key: str) -> int:
    """How many separate matrices a weight holds, one below the other.

    Three for query, key and value of ``nn.MultiheadAttention``, one for every gate of a recurrent
    layer, and one for every group of a convolution.

    Args:
        module: The module that holds the weight.
        key: Its name in that module.
    """
    if key == "in_proj_weight":
        return 3
    if isinstance(module, _ConvNd):
        return module.groups
    if key.startswith(("weight_ih", "weight_hh")):
        return next((n for kind, n in GATES.items() if isinstance(module, kind)), 1)
    return 1


def fans(module: nn.Module, tensor: Tensor, matrices: int) -> tuple[int, int]:
    """``(fan_in, fan_out)`` of a weight.

    ``fan_in`` is the number of inputs that one output depends on, ``fan_out`` the number of outputs
    that depend on one input.

    Args:
        module: The module that holds the weight.
        tensor: The weight.
        matrices: How many separate matrices it holds, see :func:`matrices_in`.
    """
    kernel = math.prod(tensor.shape[2:])
    rows, columns = tensor.shape[0] // matrices, tensor.shape[1]
    if isinstance(module, nn.Bilinear):
        return columns * kernel, rows
    if isinstance(module, _ConvTransposeNd):
        return rows * kernel, columns * kernel
    if isinstance(module, _ConvNd):
        return columns * kernel, rows * kernel
    if type(module).__name__ == "Conv1D":
        return rows, columns
    return columns, rows
