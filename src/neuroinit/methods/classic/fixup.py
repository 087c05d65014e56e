"""FixUp: an initialization for residual networks without normalization that were made for it.

Zhang, Dauphin and Ma, *Fixup Initialization: Residual Learning Without Normalization*, ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from neuroinit.methods.classic.layers import fans, is_layer, is_weight
from neuroinit.methods.classic.schemes import Kaiming
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import places


@dataclass(frozen=True, kw_only=True)
class FixUp(Kaiming):
    """Zero the last layer of every residual branch and the classifier; scale the other layers.

    The model has to be made for FixUp: every residual block has an attribute ``fixup_branch``, the
    layers of its branch in order, and the network has ``fixup_classifier``, its last layer. It also
    has scalar biases and multipliers. ``neuroinit.experiments.models`` has such networks.

    With ``L`` branches of ``m`` layers each:

    - Weights of a branch, except for its last layer: Kaiming's times ``L^(-1/(2m-2))``.
    - Weights of the last layer of a branch, and of the classifier: 0.
    - Other weights of a block, such as those of a shortcut: Kaiming's.
    - Weights outside the blocks, such as those of the first layer: torch's default.
    - Biases, and scalars named ``bias...``: 0.
    - Other scalars, which are the multipliers: 1.

    This is what the authors' code does: Kaiming's standard deviation is ``sqrt(2 / fan_out)``, and
    the first layer keeps torch's default, uniform between ``-1/sqrt(fan_in)`` and
    ``1/sqrt(fan_in)``. The authors also train all biases and multipliers with a tenth of the
    learning rate. Set this in your optimizer.

    Args:
        mode: As for :class:`~neuroinit.Kaiming`, but ``"fan_out"`` by default.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> class Block(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fixup_branch = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        ...         self.multiplier = nn.Parameter(torch.ones(1))
        ...
        ...     def forward(self, x):
        ...         return x + self.multiplier * self.fixup_branch(x)
        >>> model = nn.Sequential(nn.Linear(4, 8), Block(), Block())
        >>> model.fixup_classifier = nn.Linear(8, 3)
        >>> _ = ni.fixup_(model)
        >>> bool(model.fixup_classifier.weight.any()), model(torch.ones(1, 4)).tolist()
        (False, [[0.0, 0.0, 0.0]])
    """

    mode: str = "fan_out"

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Kaiming's values, changed as in the list."""
        branches, classifier = _structure(model)
        factors = _factors([layers for _, layers in branches], classifier)
        inside = {module for block, _ in branches for module in block.modules()} | set(factors)
        found = super().draws(model)
        for module, key, name in places(model):
            tensor = model.get_parameter(name)
            if name in found and module in factors:
                found[name] = replace(found[name], size=found[name].size * factors[module])
            elif name in found and module not in inside and is_weight(module, key, tensor):
                found[name] = _torch_default(module, tensor, found[name])
            elif _is_scalar(module, tensor) and self.selection().takes(name):
                found[name] = Draw("constant", float(not key.startswith("bias")))
        return found


def _structure(model: nn.Module) -> tuple[list[tuple[nn.Module, list[nn.Module]]], nn.Module]:
    """Every residual block with the layers of its branch, and the classifier."""
    branches = []
    for module in model.modules():
        branch: Iterable[nn.Module] | None = getattr(module, "fixup_branch", None)
        if branch is not None:
            branches.append((module, [layer for layer in branch if is_layer(layer)]))
    classifier = getattr(model, "fixup_classifier", None)
    if not branches or not isinstance(classifier, nn.Module):
        raise ValueError(
            f"FixUp needs a residual network that was made for it; `{type(model).__name__}` "
            "has no blocks with `fixup_branch` and no `fixup_classifier`. Use one of "
            "`neuroinit.experiments.models`, or another initialization, such as `NIO()`."
        )
    if not all(layers for _, layers in branches):
        raise ValueError("A `fixup_branch` is empty: it should list the layers of the branch.")
    return branches, classifier


def _factors(branches: list[list[nn.Module]], classifier: nn.Module) -> dict[nn.Module, float]:
    """Layer -> by what its weights are multiplied."""
    factors = {classifier: 0.0}
    for *first, last in branches:
        factors[last] = 0.0
        for layer in first:
            factors[layer] = len(branches) ** (-1 / (2 * len(first)))
    return factors


def _torch_default(module: nn.Module, tensor: Tensor, draw: Draw) -> Draw:
    """What ``nn.Linear`` and ``nn.Conv2d`` start with: uniform within ``1/sqrt(fan_in)``."""
    fan_in, _ = fans(module, tensor, draw.blocks)
    return replace(draw, kind="uniform", size=1 / math.sqrt(max(fan_in, 1)))


def _is_scalar(module: nn.Module, tensor: Tensor) -> bool:
    """Whether a parameter is one of FixUp's scalars, held by a block or by the network itself."""
    torchs = type(module).__module__.startswith("torch.nn")  # such as the slope of PReLU
    return tensor.numel() == 1 and tensor.requires_grad and not torchs
